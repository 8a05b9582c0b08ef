// open.ts: training data from IDX, npy and safetensors files, or from a JavaScript module.
import { existsSync } from 'node:fs'
import { readdir, stat } from 'node:fs/promises'
import path from 'node:path'
import { pathToFileURL } from 'node:url'
import { promisify } from 'node:util'
import { gunzip } from 'node:zlib'
import { expectText } from '../core/checks.js'
import { SparkError } from '../core/errors.js'
import { ioError } from '../io/atomic-write.js'
import { readBytes } from '../io/read-file.js'
import { readSafetensors, tensorFromRecord } from '../io/safetensors.js'
import type { Batch, BatchStream, BatchTensor } from '../training/dataset.js'
import { type FieldRules, TableDataset } from './table.js'

/** Returns the stream of an epoch; the default export of a data module. */
export type StreamOf = (epoch: number) => BatchStream

/**
 * Opens training data.
 *
 * - a folder with `*images*` and `*labels*` IDX files, gzipped or not: fields `images` and `labels`; of several pairs, the one
 *   whose names begin with `train`
 * - a folder of `.npy` files: one field per file, with its name
 * - a folder of `.safetensors` files, or one such file: batches that are concatenated; a file that cannot be read or has
 *   other fields than the first is skipped and reported in `bad`
 * - a `.js` or `.mjs` module: its default export, an async iterable of batches or a function that returns one for each epoch
 *
 * @throws SparkError ERR_IO when there is no such file or folder, ERR_FORMAT when nothing in it can be read
 */
export async function openData(source: string, rules: FieldRules = {}): Promise<TableDataset | StreamOf> {
  expectText('source', source)
  const file = path.resolve(source)
  if (/\.m?js$/.test(file)) return openModule(file)
  const isFolder = await stat(file).then(
    found => found.isDirectory(),
    error => {
      throw ioError('read', source, error)
    },
  )
  if (!isFolder) {
    if (file.endsWith('.safetensors')) return openBatches(source, [file], rules)
    const expected =
      'a folder of IDX, .npy or .safetensors files, a .safetensors file or a .js or .mjs module'
    throw new SparkError('ERR_FORMAT', `${source} is not training data: expected ${expected}`)
  }
  const names = (await readdir(file)).sort()
  const matching = (pattern: RegExp): string[] =>
    names.filter(name => pattern.test(name)).map(name => path.join(file, name))
  const [images, labels] = [matching(/images.*ubyte(\.gz)?$/), matching(/labels.*ubyte(\.gz)?$/)]
  if (images.length > 0 && labels.length > 0) return openIdx(images, labels, rules)
  const arrays = matching(/\.npy$/)
  if (arrays.length > 0) return openArrays(arrays, rules)
  const batches = matching(/\.safetensors$/)
  if (batches.length > 0) return openBatches(source, batches, rules)
  const expected = 'IDX files (*images*ubyte, *labels*ubyte), .npy or .safetensors files'
  throw new SparkError('ERR_FORMAT', `${source} has no training data: expected ${expected}`)
}

async function importModule(file: string): Promise<{ default?: unknown }> {
  if (!existsSync(file)) throw new SparkError('ERR_IO', `could not read ${file}: no such file or folder`)
  try {
    return (await import(pathToFileURL(file).href)) as { default?: unknown }
  } catch (error) {
    throw new SparkError('ERR_FORMAT', `${file} cannot be imported: ${String(error)}`, { cause: error })
  }
}

async function openModule(file: string): Promise<StreamOf> {
  const { default: exported } = await importModule(file)
  if (typeof exported === 'function') return exported as StreamOf
  const iterable = exported as Partial<AsyncIterable<Batch> & Iterable<Batch>> | undefined
  if (iterable?.[Symbol.asyncIterator] || iterable?.[Symbol.iterator]) return () => iterable as BatchStream
  const expected = 'an async iterable of batches, or a function that returns one for each epoch'
  throw new SparkError('ERR_FORMAT', `${file}: the default export must be ${expected}`)
}

async function readUnzipped(file: string): Promise<Uint8Array> {
  const bytes = await readBytes(file)
  if (!file.endsWith('.gz')) return bytes
  return promisify(gunzip)(bytes).catch(error => {
    throw ioError('read', file, error)
  })
}

async function openIdx(
  images: readonly string[],
  labels: readonly string[],
  rules: FieldRules,
): Promise<TableDataset> {
  const chosen = (files: readonly string[]): string =>
    files.find(file => path.basename(file).startsWith('train')) ?? files[0]!
  const { parseIdx } = await import('./idx.js')
  const read = async (file: string): Promise<BatchTensor> => parseIdx(await readUnzipped(file), file)
  const fields = { images: await read(chosen(images)), labels: await read(chosen(labels)) }
  return new TableDataset([{ source: chosen(images), fields }], rules)
}

async function openArrays(files: readonly string[], rules: FieldRules): Promise<TableDataset> {
  const fields: Record<string, BatchTensor> = {}
  for (const file of files) {
    const { parseNpy } = await import('../io/npy.js')
    const tensor = parseNpy(await readBytes(file), file)
    fields[path.basename(file, '.npy')] = tensor.dtype === 'f16' ? tensor.to('f32') : tensor
  }
  return new TableDataset([{ source: path.dirname(files[0]!), fields }], rules)
}

async function openBatches(
  source: string,
  files: readonly string[],
  rules: FieldRules,
): Promise<TableDataset> {
  const parts: { source: string; fields: Batch }[] = []
  const bad: { source: string; reason: string }[] = []
  for (const file of files) {
    try {
      const fields = await readBatch(file)
      const expected = Object.keys(parts[0]?.fields ?? fields)
      const missing = expected.find(name => !(name in fields))
      if (missing !== undefined) throw new SparkError('ERR_FORMAT', `it has no field '${missing}'`)
      parts.push({ source: file, fields })
    } catch (error) {
      bad.push({ source: file, reason: (error as Error).message })
    }
  }
  if (parts.length > 0) return new TableDataset(parts, rules, bad)
  throw new SparkError('ERR_FORMAT', `${source}: no file can be read; ${bad[0]!.source}: ${bad[0]!.reason}`)
}

async function readBatch(file: string): Promise<Batch> {
  const { tensors } = await readSafetensors(file)
  const fields = [...tensors].map(([name, record]): [string, BatchTensor] => {
    const isHalf = record.dtype === 'F16' || record.dtype === 'BF16'
    return [name, isHalf ? tensorFromRecord(name, record).to('f32') : record]
  })
  return Object.fromEntries(fields)
}
