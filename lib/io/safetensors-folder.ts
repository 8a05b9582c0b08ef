// safetensors-folder.ts: the tensors of a folder of Hugging Face: one file, or several with an index. Only headers are read
// at first.
import path from 'node:path'
import { SparkError } from '../core/errors.js'
import type { StoredBytes } from '../weights/lazy-weight.js'
import { KeptFile } from './kept-file.js'
import { isThere, readJson } from './read-file.js'
import {
  expectNotPointer,
  headerLength,
  parseHeader,
  type SafetensorsDType,
  type TensorEntry,
} from './safetensors-header.js'

/**
 * A tensor whose elements are still in their file. Reading them, row-major, throws ERR_FORMAT when the file has changed since, ERR_IO
 * and ERR_OUT_OF_MEMORY.
 */
export interface StoredTensor extends StoredBytes {
  /** Its name. */
  readonly name: string
  /** Element type, by the name in the file. */
  readonly dtype: SafetensorsDType
  /** Sizes of the dimensions. */
  readonly shape: readonly number[]
}

const indexName = 'model.safetensors.index.json'

/**
 * Opens the tensors of a folder, by name.
 * @param folder - with `model.safetensors`, or with `model.safetensors.index.json` and the files that it names
 * @throws SparkError ERR_IO when a file is missing; ERR_FORMAT for an index or header that is broken, naming the file and tensor
 */
export async function openSafetensorsFolder(folder: string): Promise<ReadonlyMap<string, StoredTensor>> {
  const index = path.join(folder, indexName)
  if (!(await isThere(index))) return openSafetensorsFile(path.join(folder, 'model.safetensors'))
  const files = filesOf(index, await readJson(index))
  const tensors = new Map<string, StoredTensor>()
  for (const [file, names] of files) {
    const stored = await openSafetensorsFile(path.join(folder, file))
    for (const name of names) {
      const tensor = stored.get(name)
      if (!tensor)
        throw new SparkError('ERR_FORMAT', `${index} says that '${name}' is in ${file}, which lacks it`)
      tensors.set(name, tensor)
    }
  }
  return tensors
}

/**
 * Opens the tensors of one file, by name.
 * @throws SparkError ERR_IO, ERR_FORMAT
 */
export async function openSafetensorsFile(file: string): Promise<ReadonlyMap<string, StoredTensor>> {
  const kept = await KeptFile.open(file)
  const prefix = await kept.load(0, Math.min(kept.byteLength, 64))
  expectNotPointer(file, prefix)
  const start = 8 + headerLength(file, prefix, kept.byteLength)
  const header = parseHeader(file, await kept.load(8, start - 8), kept.byteLength - start)
  return new Map([...header.tensors].map(([name, entry]) => [name, storedTensor(kept, start, name, entry)]))
}

function storedTensor(
  file: KeptFile,
  start: number,
  name: string,
  { dtype, shape, begin, end }: TensorEntry,
): StoredTensor {
  const byteLength = end - begin
  const at = start + begin
  return {
    name,
    dtype,
    shape,
    byteLength,
    fileParts: [{ file: file.path, begin: at, byteLength }],
    read: () => file.read(at, byteLength),
    load: () => file.load(at, byteLength),
    loadInto: (from, bytes) => file.loadInto(at + from, bytes),
  }
}

/** Names of tensors by their files, which lie in the folder of the index. */
function filesOf(index: string, json: unknown): Map<string, string[]> {
  const map = (json as { weight_map?: unknown } | null)?.weight_map
  if (typeof map !== 'object' || map === null)
    throw new SparkError('ERR_FORMAT', `${index} has no weight_map`)
  const files = new Map<string, string[]>()
  for (const [name, file] of Object.entries(map)) {
    if (typeof file !== 'string' || !/^[^/\\]+\.safetensors$/.test(file))
      throw new SparkError(
        'ERR_FORMAT',
        `${index}: weight_map has ${JSON.stringify(file)} for '${name}'; expected a .safetensors file of the same folder`,
      )
    const names = files.get(file) ?? []
    names.push(name)
    files.set(file, names)
  }
  return files
}
