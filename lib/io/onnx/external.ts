// external.ts: external tensor data: elements in files beside the model, read piecewise on demand.
import { closeSync, existsSync, fstatSync, openSync, readSync, realpathSync, type Stats } from 'node:fs'
import path from 'node:path'
import { SparkError } from '../../core/errors.js'
import type { ConstantSource } from '../../graph/constant.js'
import { ioError } from '../atomic-write.js'
import { fill, openFile as openForReading, readFlags } from '../read-file.js'
import { expectNotPointer } from '../safetensors-header.js'
import type { Message } from './messages.js'

/** Files beside a model that have been looked at, by their path. */
export interface ExternalFiles {
  /** The model's folder; undefined for a model that came as bytes. */
  readonly folder: string | undefined
  /** Bytes of the files instead, by their names in the model. */
  readonly given?: ReadonlyMap<string, Uint8Array> | undefined
  readonly known: Map<string, KnownFile>
}

interface KnownFile {
  readonly file: string
  /** Identity of the content: a file that has been replaced must not be read as the old one. */
  readonly identity: string
  readonly bytes: number
}

/** One read call takes at most 2^31 − 1 bytes. */
const maxChunk = 1 << 30

/**
 * Where the elements of a tensor are, checked against the size of their file but not yet read.
 * @param entries - `external_data` of the TensorProto
 * @param what - names model and tensor in errors
 * @param byteLength - bytes the elements need
 * @throws SparkError ERR_FORMAT for a range outside of the model's folder or of the file, ERR_IO when the file does not exist
 */
export function externalSource(
  files: ExternalFiles,
  entries: readonly Message<'Entry'>[],
  what: string,
  byteLength: number,
): ConstantSource {
  const fields = new Map(entries.map(({ key = '', value = '' }) => [key, value]))
  const location = fields.get('location') ?? ''
  const bytes = files.given?.get(location) ?? files.given?.get(location.replace(/^\.\//, ''))
  const known = bytes ? { bytes: bytes.byteLength } : lookUp(files, location, what)
  const number = (key: string, fallback: number): number => {
    const text = fields.get(key)
    const value = text === undefined ? fallback : Number(text)
    if (text === '' || !Number.isSafeInteger(value) || value < 0) {
      throw new SparkError('ERR_FORMAT', `${what}: external_data ${key} is '${text}', not a number of bytes`)
    }
    return value
  }
  const offset = number('offset', 0)
  const length = number('length', byteLength)
  if (length !== byteLength) {
    throw new SparkError(
      'ERR_FORMAT',
      `${what}: external_data length is ${length}, but the elements have ${byteLength} bytes`,
    )
  }
  if (offset + length > known.bytes) {
    throw new SparkError(
      'ERR_FORMAT',
      `${what}: bytes ${offset} to ${offset + length} of '${location}' are wanted, but it has ${known.bytes}: it is truncated or belongs to another model`,
    )
  }
  if (bytes) return { byteLength, read: () => bytes.subarray(offset, offset + length), inMemory: true }
  return pieceSource(known as KnownFile, offset, length, what)
}

/** Elements that stay in a file beside the model until somebody asks for them. */
function pieceSource(file: KnownFile, offset: number, byteLength: number, what: string): ConstantSource {
  return {
    byteLength,
    read: () => readPiece(file, offset, byteLength, what),
    load: () => loadPiece(file, offset, byteLength, what),
    part: (begin, length) => pieceSource(file, offset + begin, length, what),
    isBeside: true,
    fileParts: [{ file: file.file, begin: offset, byteLength }],
  }
}

function lookUp(files: ExternalFiles, location: string, what: string): KnownFile {
  const known = files.known.get(location)
  if (known) return known
  if (files.folder === undefined) {
    throw new SparkError(
      'ERR_FORMAT',
      `${what} is in the file '${location}': load the model by its path, or give externalData: { '${location}': bytes }`,
    )
  }
  const file = path.resolve(files.folder, location)
  const outside = new SparkError(
    'ERR_FORMAT',
    `${what}: the external file '${location}' is not inside the folder of the model`,
  )
  if (
    location === '' ||
    location.includes('\0') ||
    path.isAbsolute(location) ||
    !isInside(files.folder, file)
  ) {
    throw outside
  }
  const descriptor = openFile(file, what)
  try {
    // A symbolic link must not lead outside either.
    const real = realpathSync(file)
    const allowed = [files.folder, ...contentFolders(files.folder)]
    if (!allowed.some(folder => isInside(realpathSync(folder), real))) throw outside
    const stats = fstatSync(descriptor)
    if (!stats.isFile()) throw new SparkError('ERR_FORMAT', `${what}: '${location}' is not a file`)
    const head = new Uint8Array(64)
    expectNotPointer(file, head.subarray(0, readSync(descriptor, head, 0, 64, 0)))
    const found = { file, identity: identityOf(stats), bytes: stats.size }
    files.known.set(location, found)
    return found
  } catch (error) {
    throw error instanceof SparkError ? error : ioError('read', file, error)
  } finally {
    closeSync(descriptor)
  }
}

/** Where the cache of the Hugging Face hub has the content of a snapshot, whose files are links; none for another folder. */
function contentFolders(folder: string): string[] {
  const snapshot = /^(.*)[/\\](models--[^/\\]+)[/\\]snapshots[/\\][0-9a-f]{40}([/\\]|$)/
  const [, cache, repository] = snapshot.exec(path.resolve(folder)) ?? []
  if (cache === undefined || repository === undefined) return []
  return [path.join(cache, repository, 'blobs'), path.join(cache, 'blobs')].filter(each => existsSync(each))
}

function isInside(folder: string, file: string): boolean {
  const relative = path.relative(folder, file)
  return (
    relative !== '' &&
    relative !== '..' &&
    !relative.startsWith(`..${path.sep}`) &&
    !path.isAbsolute(relative)
  )
}

function identityOf({ dev, ino, size, mtimeMs }: Stats): string {
  return [dev, ino, size, mtimeMs].join(':')
}

function openFile(file: string, what: string): number {
  try {
    return openSync(file, readFlags)
  } catch (error) {
    const { message } = ioError('read', file, error)
    throw new SparkError('ERR_IO', `${what}: ${message}`, { cause: error })
  }
}

function readPiece({ file, identity }: KnownFile, offset: number, length: number, what: string): Uint8Array {
  const descriptor = openFile(file, what)
  try {
    expectSame(identity, fstatSync(descriptor), file, what)
    const bytes = allocate(length, what)
    for (let done = 0; done < length; ) {
      const count = readSync(descriptor, bytes, done, Math.min(maxChunk, length - done), offset + done)
      if (count === 0) throw new SparkError('ERR_FORMAT', `${what}: ${file} became shorter while it was read`)
      done += count
    }
    return bytes
  } catch (error) {
    throw error instanceof SparkError ? error : ioError('read', file, error)
  } finally {
    closeSync(descriptor)
  }
}

/** As {@link readPiece}, without holding the JavaScript thread up. */
async function loadPiece(
  { file, identity }: KnownFile,
  offset: number,
  length: number,
  what: string,
): Promise<Uint8Array> {
  const handle = await openForReading(file)
  try {
    expectSame(identity, await handle.stat(), file, what)
    const bytes = allocate(length, what)
    await fill(handle, file, bytes, offset)
    return bytes
  } catch (error) {
    throw ioError('read', file, error)
  } finally {
    await handle.close()
  }
}

function expectSame(identity: string, stats: Stats, file: string, what: string): void {
  if (identityOf(stats) === identity) return
  const message = `${what}: ${file} has changed since the model was loaded: load it again`
  throw new SparkError('ERR_FORMAT', message)
}

function allocate(length: number, what: string): Uint8Array {
  try {
    return new Uint8Array(length)
  } catch (error) {
    throw new SparkError('ERR_OUT_OF_MEMORY', `${what}: no memory for ${length} bytes`, { cause: error })
  }
}
