// addon-file.ts: where the addon of this machine is.
import { existsSync, readdirSync } from 'node:fs'
import path from 'node:path'
import { packageFolder } from './package-folder.js'

/**
 * The addon for this machine: what `DGX_SPARK_PREBUILD` names, or in the package what was built there, or a prebuild.
 * @throws Error when there is none
 */
export function addonFile(): string {
  const { DGX_SPARK_BUILD: build, DGX_SPARK_PREBUILD: given } = process.env
  const folder = given ? path.resolve(given) : packageFolder()
  if (folder === undefined)
    throw new Error(
      'this is a bundle without the package: let DGX_SPARK_PREBUILD name the folder that holds prebuilds/',
    )
  if (folder.endsWith('.node')) return folder
  const prebuilds = `${process.platform}-${process.arch}`
  const built = path.join(folder, 'build', build === 'debug' ? 'Debug' : 'Release', 'dgx_spark.node')
  const folders = [path.join(folder, 'prebuilds', prebuilds), path.join(folder, prebuilds)]
  const files = [built, ...(build === 'debug' ? [] : folders.flatMap(prebuildsIn))]
  const file = files.find(existsSync)
  if (file) return file
  const looked = [built, ...folders].map(it => path.relative(folder, it)).join(', ')
  throw new Error(
    `there is no addon for ${prebuilds} (${libc}) in ${folder}, which was searched for ${looked}`,
  )
}

/** Which C library prebuilds must be for. */
const libc = existsSync('/etc/alpine-release') ? 'musl' : 'glibc'

/** The prebuilds in a folder that fit the C library, those named after it first. */
function prebuildsIn(folder: string): string[] {
  if (!existsSync(folder)) return []
  const other = libc === 'musl' ? '.glibc.' : '.musl.'
  const names = readdirSync(folder).filter(name => name.endsWith('.node') && !name.includes(other))
  return names
    .sort((a, b) => Number(b.includes(libc)) - Number(a.includes(libc)))
    .map(name => path.join(folder, name))
}
