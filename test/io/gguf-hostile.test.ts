// GGUF files that lie, end too early or are damaged: an error that names the file, no crash, no memory beyond its size.
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import path from 'node:path'
import { type GgufFile, type GgufValue, readGguf, SparkError, writeGguf } from 'dgx-spark'
import t, { type Test } from 'tap'
import { everyFormat, everyType } from '../fixtures/gguf/every-value.js'
import { array, key, type RawTensor, rawGguf, text, u32, u64 } from '../fixtures/gguf/raw-gguf.js'
import { randomGenerator } from '../fixtures/values/random.js'

const folder = mkdtempSync(path.join(tmpdir(), 'dgx-spark-gguf-hostile-'))
t.teardown(() => rmSync(folder, { recursive: true }))

/** Asserts that reading a file, from disk and from memory, says what is wrong with it. */
async function refuses(
  t: Test,
  name: string,
  bytes: Uint8Array,
  message: RegExp,
  code = 'ERR_FORMAT',
): Promise<void> {
  const file = path.join(folder, 'hostile.gguf')
  writeFileSync(file, bytes)
  await t.rejects(readGguf(file), { code, message }, name)
  await t.rejects(readGguf(file), { message: /hostile\.gguf/ }, `${name}: names the file`)
  await t.rejects(readGguf(bytes), { code, message }, `${name}, in memory`)
}

t.test('starts', async t => {
  await refuses(t, 'nothing', Buffer.alloc(0), /0 bytes are too few for a GGUF file/)
  await refuses(t, 'another magic', rawGguf({ magic: 'GGML' }), /begins with 'GGML', not with 'GGUF'/)
  await refuses(
    t,
    'a pointer',
    Buffer.from('version https://git-lfs.github.com/spec/v1\n'),
    /Git LFS pointer/,
  )
  for (const version of [0, 1, 4, 2 ** 32 - 1])
    await refuses(
      t,
      `version ${version}`,
      rawGguf({ version }),
      /has GGUF version \d+; 2 and 3/,
      'ERR_UNSUPPORTED',
    )
  await refuses(t, 'big-endian', rawGguf({ version: 3 * 2 ** 24 }), /is big-endian/, 'ERR_UNSUPPORTED')
})

t.test('counts', async t => {
  const absurd = [10n ** 9n, 2n ** 40n, 2n ** 53n - 1n]
  for (const count of absurd) {
    const message = /keys and \d+ tensors do not fit in the \d+ bytes/
    await refuses(t, `${count} tensors`, rawGguf({ counts: [count, 0] }), message)
    await refuses(t, `${count} keys`, rawGguf({ counts: [0, count] }), message)
  }
  await refuses(
    t,
    '2^64 - 1 tensors',
    rawGguf({ counts: [2n ** 64n - 1n, 0] }),
    /the number of tensors: 1844.* is too large/,
  )
  const keys = [key('a', 4, u32(1))]
  await refuses(t, 'one key too many', rawGguf({ keys, counts: [0, 2] }), /key 2 of 2 has no name/)
})

t.test('keys', async t => {
  const refusesKey = (name: string, type: number, value: Buffer, message: RegExp) =>
    refuses(t, name, rawGguf({ keys: [key('k', type, value)] }), message)
  for (const type of [13, 255, 2 ** 31])
    await refusesKey(`type ${type}`, type, u32(0), /key 'k' has type \d+; GGUF has the types 0 to 12/)
  for (const length of [200n, 2n ** 40n])
    await refusesKey(
      `string of ${length}`,
      8,
      text('x', length),
      /key 'k' ends at byte \d+, but the file has \d+ bytes/,
    )
  await refusesKey('string of 2^63', 8, text('x', 2n ** 63n), /key 'k': 9223372036854775808 is too large/)
  await refusesKey('a bool of 2', 7, Buffer.of(2), /key 'k' is a bool of 2; expected 0 or 1/)
  await refusesKey('an array with a bool of 2', 9, array(7, 2, Buffer.of(1, 2)), /key 'k' is a bool of 2/)
  await refusesKey('nested arrays', 9, array(9, 1, array(4, 1, u32(1))), /key 'k' is an array of arrays/)
  await refusesKey('an array of type 99', 9, array(99, 1, u32(1)), /array of type 99/)
  for (const type of [0, 4, 12])
    for (const count of [100n, 2n ** 40n, 2n ** 53n - 1n])
      await refusesKey(`${count} of type ${type}`, 9, array(type, count, u32(1)), /key 'k' ends at byte \d+/)
  for (const count of [100n, 2n ** 40n])
    await refusesKey(
      `${count} strings`,
      9,
      array(8, count, text('x')),
      /has \d+ strings, more than the file has bytes/,
    )
  const texts = Buffer.concat([text('x'), text('y', 2n ** 33n)])
  await refusesKey('a string of an array', 9, array(8, 2, texts), /string 2 of key 'k' ends at byte/)
  const same = key('k', 4, u32(1))
  await refuses(t, 'a key twice', rawGguf({ keys: [same, same] }), /key 'k' is there twice/)
  const long = Buffer.concat([u64(2n ** 35n), Buffer.alloc(64)])
  await refuses(t, 'a long name', rawGguf({ keys: [long] }), /the name of key 1 of 1 ends at byte/)
})

t.test('alignment', async t => {
  const aligned = (type: number, value: Buffer) => rawGguf({ keys: [key('general.alignment', type, value)] })
  for (const value of [0, 3, 24, 2 ** 32 - 1])
    await refuses(
      t,
      `${value}`,
      aligned(4, u32(value)),
      /general.alignment must be a power of two of type u32, got u32 \d+/,
    )
  await refuses(t, 'of another type', aligned(8, text('32')), /power of two of type u32, got string 32/)
  const far = rawGguf({ keys: [key('general.alignment', 4, u32(2 ** 31))], tensors: [{}] })
  await refuses(t, 'beyond the file', far, /tensor 'x' ends at byte 32 of the data, but the file has 0/)
})

t.test('tensors', async t => {
  const refusesTensors = (name: string, tensors: readonly RawTensor[], message: RegExp, dataBytes = 256) =>
    refuses(t, name, rawGguf({ tensors, dataBytes }), message)
  const huge = /tensor 'x' is F32 \[.*\], more than the \d+ bytes of the file/
  await refusesTensors(
    'too many dimensions',
    [{ sizes: [1, 1, 1, 1, 1] }],
    /has 5 dimensions; the limit is 4/,
  )
  await refusesTensors('2^32 elements', [{ sizes: [2n ** 32n] }], huge)
  await refusesTensors('a product beyond 2^53', [{ sizes: [2n ** 30n, 2n ** 30n] }], huge)
  await refusesTensors('a product of 2^64', [{ sizes: [2n ** 32n, 2n ** 32n] }], huge)
  await refusesTensors('a product of 2^192', [{ sizes: Array(4).fill(2n ** 48n) }], huge)
  await refusesTensors(
    'a negative size',
    [{ sizes: [2n ** 64n - 1n] }],
    /tensor 'x': 18446744073709551615 is too large/,
  )
  for (const type of [4, 5, 31, 38, 43, 2 ** 32 - 1])
    await refusesTensors(`type ${type}`, [{ type }], /tensor 'x' has type \d+, which is none of GGUF/)
  await refusesTensors('part of a block', [{ type: 12, sizes: [255] }], /Q4_K with rows of 255 elements/)
  await refusesTensors('blocks across rows', [{ type: 8, sizes: [16, 2] }], /Q8_0 with rows of 16 elements/)
  await refusesTensors('a scalar in blocks', [{ type: 8, sizes: [] }], /Q8_0 with rows of 1 elements/)
  await refusesTensors(
    'beyond the end',
    [{ offset: 256 }],
    /ends at byte 288 of the data, but the file has 256/,
  )
  await refusesTensors('far beyond', [{ offset: 2n ** 53n - 32n }], /ends at byte \d+ of the data/)
  await refusesTensors('at 2^63', [{ offset: 2n ** 63n }], /9223372036854775808 is too large/)
  await refusesTensors(
    'unaligned',
    [{ offset: 8 }],
    /is at byte 8 of the data, which is no multiple of the alignment, 32/,
  )
  const same = { name: 'a', offset: 0 }
  await refusesTensors('no name', [{ name: '' }], /tensor 1 of 1 has no name/)
  await refusesTensors('a name twice', [same, { ...same, offset: 32 }], /tensor 'a' is there twice/)
  const overlap = /tensors 'a' and 'b' overlap at byte 32 of the data/
  const long = { name: 'a', sizes: [9], offset: 0 }
  await refusesTensors('overlap', [{ name: 'b', offset: 32 }, long], overlap)
  await refusesTensors('no data', [{}], /the file has 0 of them: it is truncated/, 0)
})

/** A file that has something of everything. */
async function smallFile(): Promise<Buffer> {
  const file = path.join(folder, 'small.gguf')
  const words: GgufValue = { type: 'array', of: 'string', value: ['▁a', 'b', '', 'cd'] }
  const formats = everyFormat.filter(({ format }) => ['F32', 'Q8_0', 'Q4_K', 'I8'].includes(format))
  await writeGguf(file, { metadata: { ...everyType, words }, tensors: formats })
  return readFileSync(file)
}

t.test('every truncation of a file', async t => {
  const whole = await smallFile()
  const { tensors } = await readGguf(whole)
  const last = [...tensors.values()].at(-1)!
  const end = last.read().byteOffset - whole.byteOffset + last.byteLength
  for (let length = 0; length < whole.length; length++) {
    const part = whole.subarray(0, length)
    const error = await readGguf(part).then(
      () => undefined,
      error => error,
    )
    // What follows the last tensor is padding.
    if (length >= end) t.equal(error, undefined, `${length} of ${whole.length} bytes`)
    else if (!(error instanceof SparkError && error.code === 'ERR_FORMAT'))
      t.fail(`${length} bytes: ${error?.stack}`)
  }
  t.ok(end > 1500 && end <= whole.length, `${end} of ${whole.length} bytes`)
})

t.test('truncated files on disk', async t => {
  const whole = await smallFile()
  const file = path.join(folder, 'cut.gguf')
  for (let length = 0; length < whole.length - 32; length += 41) {
    writeFileSync(file, whole.subarray(0, length))
    await t.rejects(readGguf(file), { code: 'ERR_FORMAT', message: /cut\.gguf/ }, `${length} bytes`)
  }
})

/** Damages a copy of a file: bytes, 64-bit words, or pieces that are removed, repeated or swapped. */
function mutated(whole: Uint8Array, random: () => number): Uint8Array {
  const integer = (end: number): number => Math.floor(random() * end)
  const words = [0n, 1n, 0xffn, 2n ** 31n, 2n ** 32n, 2n ** 53n, 2n ** 63n, 2n ** 64n - 1n]
  let bytes = Uint8Array.from(whole)
  for (let count = 1 + integer(3); count > 0; count--) {
    const at = integer(bytes.length - 16)
    const kind = integer(6)
    if (kind <= 1) bytes[at] = integer(256)
    else if (kind === 2) bytes[at]! ^= 1 << integer(8)
    else if (kind === 3) new DataView(bytes.buffer).setBigUint64(at, words[integer(words.length)]!, true)
    else if (kind === 4)
      bytes = Uint8Array.from([...bytes.subarray(0, at), ...bytes.subarray(at + 1 + integer(16))])
    else bytes.copyWithin(at, integer(bytes.length - 16), bytes.length)
  }
  return bytes
}

/** Everything that a caller may ask a file that was read. */
async function useAll(file: GgufFile, fileBytes: number): Promise<void> {
  for (const { byteLength, ...tensor } of file.tensors.values())
    if (byteLength > fileBytes) throw new Error(`${tensor.name} has ${byteLength} bytes of ${fileBytes}`)
  for (const tensor of file.tensors.values()) {
    const values = await tensor.values().catch((error: unknown) => {
      if (error instanceof SparkError && error.code === 'ERR_UNSUPPORTED') return undefined
      throw error
    })
    if (values && values.length !== tensor.count)
      throw new Error(`${tensor.name} has ${values.length} values`)
  }
}

t.test('thousands of damaged files', async t => {
  const whole = await smallFile()
  const random = randomGenerator(20_181)
  const outcomes = new Map<string, number>()
  for (let trial = 0; trial < 6000; trial++) {
    const bytes = mutated(whole, random)
    let outcome = 'read'
    try {
      await useAll(await readGguf(bytes), bytes.length)
    } catch (error) {
      outcome = error instanceof SparkError ? error.code : `trial ${trial}: ${(error as Error).stack}`
    }
    outcomes.set(outcome, (outcomes.get(outcome) ?? 0) + 1)
  }
  const known = ['read', 'ERR_FORMAT', 'ERR_UNSUPPORTED']
  t.strictSame(
    [...outcomes.keys()].filter(outcome => !known.includes(outcome)),
    [],
  )
  t.ok(outcomes.get('read')! > 100 && outcomes.get('ERR_FORMAT')! > 1000, JSON.stringify([...outcomes]))
})

t.test('sources that are none', async t => {
  for (const source of [undefined, null, 5, '', {}, [1]])
    await t.rejects(readGguf(source as never), {
      code: 'ERR_ARGUMENT',
      message: /source must be a path or a Uint8Array/,
    })
  await t.rejects(readGguf(path.join(folder, 'none.gguf')), { code: 'ERR_IO', message: /no such file/ })
  await t.rejects(readGguf(folder), { code: 'ERR_IO', message: /folder/ })
  const detached = Uint8Array.from(await smallFile())
  structuredClone(detached.buffer, { transfer: [detached.buffer] })
  await t.rejects(readGguf(detached), { code: 'ERR_DISPOSED' })
})
