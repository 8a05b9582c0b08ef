// package-folder.ts: where the files of the package are, also for a bundle that the library became part of.
import { existsSync } from 'node:fs'
import path from 'node:path'
import { fileURLToPath } from 'node:url'

/** The file of this module, or of the bundle that it is in: those in CommonJS have no URL. */
function moduleFile(): string {
  const { url } = import.meta as { url?: string }
  if (url?.startsWith('file:')) return fileURLToPath(url)
  return typeof __filename === 'string' ? __filename : path.resolve(process.argv[1] ?? 'main.js')
}

/** The folder of the package: that of this module, or the one that an import from a bundle would find; else undefined. */
export function packageFolder(): string | undefined {
  const folder = path.dirname(moduleFile())
  const own = path.join(folder, '..', '..')
  if (existsSync(path.join(own, 'dist', 'core', 'package-folder.js'))) return own
  // Bundlers replace what Node has for this.
  for (let at = folder; ; at = path.dirname(at)) {
    const found = path.join(at, 'node_modules', 'dgx-spark')
    if (existsSync(path.join(found, 'package.json'))) return found
    if (at === path.dirname(at)) return undefined
  }
}
