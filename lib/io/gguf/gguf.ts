// gguf.ts: reading and writing GGUF, the format of llama.cpp: metadata, then tensors in blocks of few bits.
import { argumentError, expectAttached, expectKnownOptions, expectText } from '../../core/checks.js'
import type { GgufFile } from './file.js'
import type { GgufInput } from './input.js'

/**
 * Reads the metadata of a GGUF file of version 2 or 3, little-endian, and where its tensors are. Their elements stay in the
 * file, which stays open for them, until somebody asks for them. Everything else is checked here: sizes, offsets, overlaps,
 * names that occur twice.
 *
 * @param source - a path; of a file that is split (`-00001-of-0000n.gguf`) that of any part, and all of them are read. Or
 * the bytes of a file, which tensors are then views of
 * @throws SparkError ERR_FORMAT naming the file and the key or tensor, ERR_UNSUPPORTED for other versions and big-endian
 * files, ERR_IO when a file cannot be read, ERR_OUT_OF_MEMORY, ERR_ARGUMENT
 * @example
 * const model = await readGguf('model.gguf')
 * for (const { name, format, shape } of model.tensors.values()) console.log(name, format, shape)
 */
export async function readGguf(source: string | Uint8Array): Promise<GgufFile> {
  const { readFile, readMemory } = await import('./read.js')
  if (source instanceof Uint8Array) {
    expectAttached('source', source)
    return readMemory(source, 'gguf')
  }
  if (typeof source !== 'string' || source === '')
    throw argumentError('source', 'a path or a Uint8Array', source)
  return readFile(source)
}

/**
 * Writes a GGUF file of version 3, which appears whole or not at all. Elements are asked for one tensor after another.
 *
 * @throws SparkError ERR_ARGUMENT for metadata or a name that cannot be written; ERR_SHAPE for elements that do not fit
 * their shape, or rows that are no whole blocks; ERR_NOT_FINITE and ERR_RANGE for numbers that a format does not hold;
 * ERR_IO when the disk is full or the file cannot be written
 * @example
 * await writeGguf('tiny.gguf', {
 *   metadata: { 'general.architecture': { type: 'string', value: 'llama' } },
 *   tensors: [{ name: 'output.weight', format: 'Q8_0', shape: [1, 32], values: () => new Float32Array(32).fill(1) }],
 * })
 */
export async function writeGguf(file: string, input: GgufInput): Promise<void> {
  expectText('file', file)
  expectKnownOptions('input', input, ['metadata', 'tensors'])
  const { writeFile } = await import('./write.js')
  await writeFile(file, input)
}
