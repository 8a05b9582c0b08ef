import { readFileSync } from 'node:fs'
import path from 'node:path'
import { packageFolder } from './package-folder.js'

/** The version in package.json; `unknown` in a bundle beside which there is no package. */
export function packageVersion(): string {
  const folder = packageFolder()
  if (folder === undefined) return 'unknown'
  return JSON.parse(readFileSync(path.join(folder, 'package.json'), 'utf8')).version
}
