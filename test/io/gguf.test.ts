// GGUF files: metadata and tensors of golden files, all types of values, splits.
import { mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import path from 'node:path'
import { crc32, gunzipSync } from 'node:zlib'
import { type GgufValue, readGguf, writeGguf } from 'dgx-spark'
import t, { type Test } from 'tap'
import { Constant } from '#lib/graph/constant.js'
import type { BlockFormat } from '#lib/weights/blocks/formats.js'
import { everyFormat, everyType } from '../fixtures/gguf/every-value.js'
import { array, key, rawGguf, text, u32, u64 } from '../fixtures/gguf/raw-gguf.js'
import { goldenJson, noGolden } from '../fixtures/values/golden-bytes.js'
import { randomGenerator, uniform } from '../fixtures/values/random.js'

const root = process.env.DGX_SPARK_TEST_DATA ?? ''
const folder = mkdtempSync(path.join(tmpdir(), 'dgx-spark-gguf-'))
t.teardown(() => rmSync(folder, { recursive: true }))
const fileOf = (name: string): string => path.join(folder, name)

t.test('versions and empty files', async t => {
  for (const version of [2, 3]) {
    const file = await readGguf(rawGguf({ version, dataBytes: 0 }))
    t.match(file, { version, metadata: new Map(), tensors: new Map() })
  }
  t.equal((await readGguf(rawGguf({ dataBytes: 0 }).subarray(0, 24))).tensors.size, 0, 'without padding')
  const file = fileOf('empty.gguf')
  await writeGguf(file, {})
  t.equal((await readGguf(file)).metadata.size, 0)
})

t.test('what tensors may be', async t => {
  const tensors = [
    { name: 'scalar', sizes: [], offset: 0 },
    { name: 'none', sizes: [0, 7], offset: 0 },
    { name: 'four', sizes: [1, 2, 1, 3], offset: 64 },
  ]
  const { tensors: read } = await readGguf(rawGguf({ tensors, dataBytes: 88 }))
  t.strictSame(
    [...read.values()].map(({ shape, count, byteLength }) => ({ shape, count, byteLength })),
    [
      { shape: [], count: 1, byteLength: 4 },
      { shape: [7, 0], count: 0, byteLength: 0 },
      { shape: [3, 1, 2, 1], count: 6, byteLength: 24 },
    ],
  )
  t.equal(read.get('four')!.read()[0], 64 & 0x3f, 'holes between tensors are none of its business')
})

t.test('a tensor as a constant of a graph', async t => {
  const file = fileOf('constant.gguf')
  const values = uniform(randomGenerator(1), 12)
  await writeGguf(file, { tensors: [{ name: 'w', format: 'F32', shape: [3, 4], values: () => values }] })
  const tensor = (await readGguf(file)).tensors.get('w')!
  t.strictSame(Constant.lazy('f32', tensor.shape, tensor).data, values)
})

t.test('metadata by type', async t => {
  const file = fileOf('typed.gguf')
  await writeGguf(file, { metadata: everyType })
  const read = await readGguf(file)
  t.equal(read.text('string'), 'größer ▁ 🤖\n')
  t.equal(read.number('i16'), -32_768)
  t.equal(read.flag('bool'), true)
  t.strictSame(read.numbers('array.i64'), [-5])
  t.strictSame(read.numbers('u8'), [255])
  t.strictSame(read.texts('array.string'), ['', 'a', '▁the', '\0'])
  for (const name of ['text', 'number', 'flag', 'numbers', 'texts'] as const)
    t.equal(read[name]('none'), undefined)
  const wrong: [() => unknown, RegExp][] = [
    [() => read.text('u8'), /u8 is of type u8; expected a string/],
    [() => read.number('array.u8'), /array.u8 is an array of u8; expected a number/],
    [() => read.number('string'), /string is of type string; expected a number/],
    [() => read.flag('u8'), /expected a bool/],
    [() => read.numbers('array.bool'), /array.bool is an array of bool; expected numbers/],
    [() => read.texts('string'), /expected an array of strings/],
    [() => read.number('u64'), /18446744073709551615, which is beyond 2\^53/],
    [() => read.numbers('array.u64'), /beyond/],
  ]
  for (const [call, message] of wrong) t.throws(call, { code: 'ERR_FORMAT', message })
})

t.test('a header larger than what is read at first', async t => {
  const words = Array.from({ length: 60_000 }, (_, i) => `word ${i} ${'▁'.repeat(i % 7)}`)
  const file = fileOf('words.gguf')
  const metadata: Record<string, GgufValue> = { words: { type: 'array', of: 'string', value: words } }
  for (let i = 0; i < 300; i++) metadata[`key.${i}`] = { type: 'string', value: 'x'.repeat(i) }
  const numbers = Float32Array.from({ length: 50_000 }, (_, i) => i)
  metadata.numbers = { type: 'array', of: 'f32', value: numbers }
  await writeGguf(file, { metadata, tensors: everyFormat })
  const read = await readGguf(file)
  t.strictSame(read.texts('words'), words)
  t.strictSame(read.metadata.get('numbers')!.value, numbers)
  t.equal(read.metadata.size, 302)
  t.strictSame(
    Buffer.from(read.tensors.get('tensor.Q4_K')!.read()),
    Buffer.from(everyFormat.find(({ format }) => format === 'Q4_K')!.data),
  )
})

/** What a golden file says about its tensors. */
interface Golden {
  readonly tensors: Readonly<Record<string, { type: BlockFormat; shape: number[]; crc32_of_f32?: number }>>
}

t.test('golden files', { skip: noGolden }, async t => {
  const files = readdirSync(path.join(root, 'lm-golden/gguf')).filter(name => name.endsWith('.gguf'))
  t.equal(files.length, 16)
  for (const name of files) {
    const { tensors } = await readGguf(path.join(root, 'lm-golden/gguf', name))
    const golden = goldenJson<Golden>(`lm-golden/gguf/${name.replace('.gguf', '.golden.json')}`)
    t.strictSame([...tensors.keys()].sort(), Object.keys(golden.tensors).sort(), name)
    for (const [key, about] of Object.entries(golden.tensors)) {
      const tensor = tensors.get(key)!
      t.match(tensor, { format: about.type, shape: about.shape }, `${name} ${key}`)
      // Divisors of frequencies have no sums there.
      if (about.crc32_of_f32 === undefined && key === 'rope_freqs.weight') continue
      const { buffer } = await tensor.values()
      t.equal(crc32(new Uint8Array(buffer as ArrayBuffer)), about.crc32_of_f32, `${name} ${key}: values`)
    }
  }
})

t.test('vocabularies', { skip: noGolden }, async t => {
  const source = path.join(root, 'llm/gguf-vocab')
  const sizes = {
    'bert-bge': 30_522,
    'gemma-4': 262_144,
    'gpt-2': 50_257,
    'llama-bpe': 128_256,
    'llama-spm': 32_000,
    qwen2: 151_936,
  }
  for (const [name, count] of Object.entries(sizes)) {
    const read = await readGguf(gunzipSync(readFileSync(path.join(source, `ggml-vocab-${name}.gguf.gz`))))
    const tokens = read.texts('tokenizer.ggml.tokens')!
    t.equal(tokens.length, count, name)
    t.equal(read.numbers('tokenizer.ggml.token_type')!.length, count, `${name}: types`)
    t.equal(new Set(tokens).size, count, `${name}: no two are the same`)
  }
})

/** Writes the parts of a file with one tensor each, and gives their paths. */
async function writeParts(
  stem: string,
  changes: readonly Readonly<Record<string, GgufValue>>[],
): Promise<string[]> {
  const count = changes.length
  const paths: string[] = []
  for (const [i, change] of changes.entries()) {
    const number = (n: number): string => String(n).padStart(5, '0')
    const file = fileOf(`${stem}-${number(i + 1)}-of-${number(count)}.gguf`)
    const values = () => Float32Array.of(i, i)
    await writeGguf(file, {
      metadata: {
        'split.no': { type: 'u16', value: i },
        'split.count': { type: 'u16', value: count },
        'split.tensors.count': { type: 'i32', value: count },
        ...(i === 0 && { 'general.name': { type: 'string', value: stem } }),
        ...change,
      },
      tensors: [{ name: `blk.${change.sameName ? 0 : i}.w`, format: 'F32', shape: [2], values }],
    })
    paths.push(file)
  }
  return paths
}

t.test('splits', async t => {
  const paths = await writeParts('good', [{}, {}, {}])
  for (const given of paths) {
    const read = await readGguf(given)
    t.strictSame(read.parts, paths)
    t.equal(read.text('general.name'), 'good')
    t.strictSame([...read.tensors.keys()], ['blk.0.w', 'blk.1.w', 'blk.2.w'])
    for (const [i, tensor] of [...read.tensors.values()].entries())
      t.strictSame([...(await tensor.values())], [i, i])
  }
  const refused = async (t: Test, given: string, message: RegExp, code = 'ERR_FORMAT') =>
    t.rejects(readGguf(given), { code, message })
  const renamed = fileOf('renamed.gguf')
  writeFileSync(renamed, readFileSync(paths[0]!))
  await refused(t, renamed, /renamed.gguf is one of 3 parts .* -00001-of-00003.gguf/)
  await t.rejects(readGguf(readFileSync(paths[0]!)), { code: 'ERR_UNSUPPORTED', message: 'one of 3 parts' })
  const swapped = await writeParts('swapped', [{}, { 'split.no': { type: 'u16', value: 5 } }])
  await refused(
    t,
    swapped[0]!,
    /swapped-00002-of-00002.gguf says that it is part 6 of 2, but its name says 2 of 2/,
  )
  const few = await writeParts('few', [{ 'split.tensors.count': { type: 'i32', value: 7 } }, {}])
  await refused(t, few[0]!, /its 2 parts hold 2 tensors, but should hold 7/)
  const same: GgufValue = { type: 'bool', value: true }
  const twice = await writeParts('twice', [{}, { sameName: same }])
  await refused(t, twice[0]!, /tensor 'blk.0.w' is in an earlier part/)
  const odd = await writeParts('odd', [{ 'split.count': { type: 'string', value: '2' } }, {}])
  await refused(t, odd[0]!, /split.count must be an integer/)
  rmSync(paths[1]!)
  await refused(t, paths[0]!, /good-00002-of-00003.gguf: no such file/, 'ERR_IO')
})

t.test('a file that changes', async t => {
  const file = fileOf('changing.gguf')
  await writeGguf(file, { tensors: everyFormat })
  const tensor = (await readGguf(file)).tensors.get('tensor.Q8_0')!
  writeFileSync(file, Buffer.concat([readFileSync(file), Buffer.alloc(5)]))
  t.throws(() => tensor.read(), { code: 'ERR_FORMAT', message: /changed since/ })
  await t.rejects(tensor.load(), { code: 'ERR_FORMAT', message: /changed since/ })
  await t.rejects(tensor.values(), { code: 'ERR_FORMAT' })
})

t.test('a file as another program writes it', async t => {
  const file = rawGguf({
    keys: [
      key('general.architecture', 8, text('llama')),
      key('n', 4, u32(7)),
      key('big', 10, u64(2n ** 60n)),
      key('words', 9, array(8, 2, Buffer.concat([text('a'), text('ü')]))),
      key('flags', 9, array(7, 2, Buffer.of(1, 0))),
      key('general.alignment', 4, u32(64)),
    ],
    tensors: [{ name: 'w', sizes: [4, 2], type: 0, offset: 0 }],
    alignment: 64,
  })
  const read = await readGguf(file)
  t.strictSame(read.metadata.get('big'), { type: 'u64', value: 2n ** 60n })
  t.strictSame(read.texts('words'), ['a', 'ü'])
  t.strictSame(read.metadata.get('flags'), { type: 'array', of: 'bool', value: [true, false] })
  t.strictSame(read.tensors.get('w')!.shape, [2, 4])
  t.strictSame(
    [...read.tensors.get('w')!.read()],
    Array.from({ length: 32 }, (_, i) => i),
  )
})
