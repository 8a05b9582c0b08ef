// pull-url.ts: models behind plain addresses, in the cache of the user.
import { stat } from 'node:fs/promises'
import path from 'node:path'
import { SparkError } from '../core/errors.js'
import { makeFolder } from '../io/atomic-write.js'
import { digest } from '../io/content-hash.js'
import { isGguf } from '../io/gguf/is-gguf.js'
import { lockFile } from '../io/lock.js'
import { cacheFile } from '../io/user-cache.js'
import { splitName } from './gguf-names.js'
import { isSafePath, type UrlName } from './model-name.js'
import type { PulledFile, PulledModel, PullOptions } from './pull-options.js'
import { shownUrl } from './request.js'
import type { ModelFormat } from './select-files.js'
import { transfer, usualAttempts } from './transfer.js'

/**
 * Pulls a file from a server, and the other parts of a GGUF model that is split.
 * @throws SparkError as {@link pullModel}
 */
export async function pullUrl({ url }: UrlName, options: PullOptions): Promise<PulledModel> {
  const { offline, dryRun, onPlan } = options
  const folder = folderOf(url)
  const parts = partsOf(url).map(part => ({ ...part, file: path.join(folder, part.name) }))
  const sizes = await Promise.all(parts.map(({ file }) => sizeOf(file)))
  onPlan?.({
    files: parts.map(({ name }, i) => ({ name, bytes: sizes[i] ?? null, isThere: sizes[i] !== undefined })),
  })
  const isThere = !sizes.includes(undefined)
  if (offline && !isThere)
    throw new SparkError('ERR_IO', `${shownUrl(url)} is not in ${folder}, and no request was made (offline)`)
  const downloadedBytes = isThere || dryRun ? 0 : await fetchParts(parts, folder, options)
  const files: PulledFile[] = []
  for (const { name, file } of parts) files.push({ name, path: file, bytes: (await sizeOf(file)) ?? 0 })
  const [{ file: first }] = parts as [Part, ...Part[]]
  return { path: first, format: await formatOf(first), files, downloadedBytes, isOffline: isThere }
}

interface Part {
  readonly url: URL
  readonly name: string
  readonly file: string
}

/** Downloads files one after another. @returns bytes that were downloaded */
async function fetchParts(parts: readonly Part[], folder: string, options: PullOptions): Promise<number> {
  const { token, signal, onProgress } = options
  let downloaded = 0
  await makeFolder(folder)
  for (const { url, name, file } of parts) {
    const part = `${file}.part`
    const before = (await sizeOf(part)) ?? 0
    const isNew = await transfer({
      ...{
        url,
        target: file,
        file: part,
        lock: () => lockFile(file),
        token,
        signal,
        attempts: usualAttempts,
      },
      onProgress: progress => onProgress?.({ ...progress, file: name }),
    })
    if (isNew) downloaded += ((await sizeOf(file)) ?? before) - before
  }
  return downloaded
}

async function sizeOf(file: string): Promise<number | undefined> {
  return (await stat(file).catch(() => undefined))?.size
}

/** A folder for each address, whose files have the names that the server gives them. */
function folderOf(url: URL): string {
  const first = new URL(url)
  first.hash = ''
  const folder = cacheFile(path.join('models', digest(first.href).slice(0, 32)))
  if (folder !== null) return folder
  throw new SparkError('ERR_IO', 'there is no folder for downloads: set XDG_CACHE_HOME to the path of one')
}

/** The file, or all parts of the model that it is a part of. */
function partsOf(url: URL): { url: URL; name: string }[] {
  const before = url.pathname.split('/')
  const last = before.pop() ?? ''
  const decoded = /%(?![0-9a-f]{2})/i.test(last) ? last : decodeURIComponent(last)
  const name = isSafePath(decoded) && !/[/:*?"<>|]/.test(decoded) ? decoded : 'model'
  const [, stem, number, count] = splitName.exec(name) ?? []
  if (stem === undefined || Number(number) > Number(count)) return [{ url, name }]
  return Array.from({ length: Number(count) }, (_, i) => {
    const part = new URL(url)
    const name = `${stem}-${String(i + 1).padStart(5, '0')}-of-${count}.gguf`
    part.pathname = [...before, encodeURIComponent(name)].join('/')
    return { url: part, name }
  })
}

async function formatOf(file: string): Promise<ModelFormat> {
  if (/\.onnx$/i.test(file)) return 'onnx'
  if ((await sizeOf(file)) === undefined) return /\.gguf$/i.test(file) ? 'gguf' : 'file'
  return (await isGguf(file)) ? 'gguf' : 'file'
}
