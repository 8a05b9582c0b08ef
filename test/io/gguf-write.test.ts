// The writer of GGUF files, against the reader and gguf-py.
import { mkdtempSync, readdirSync, readFileSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import path from 'node:path'
import { type GgufInput, readGguf, writeGguf } from 'dgx-spark'
import t from 'tap'
import { everyFormat, everyType } from '../fixtures/gguf/every-value.js'
import { fromPython, noGgufPy } from '../fixtures/gguf/gguf-py.js'
import { randomGenerator, uniform } from '../fixtures/values/random.js'

const folder = mkdtempSync(path.join(tmpdir(), 'dgx-spark-gguf-write-'))
t.teardown(() => rmSync(folder, { recursive: true }))
const fileOf = (name: string): string => path.join(folder, name)

t.test('writes what it reads', async t => {
  const file = fileOf('all.gguf')
  await writeGguf(file, { metadata: everyType, tensors: everyFormat })
  t.strictSame(readdirSync(folder), ['all.gguf'], 'no temporary file is left')
  for (const source of [file, new Uint8Array(readFileSync(file))]) {
    const { version, alignment, metadata, tensors } = await readGguf(source)
    t.strictSame([version, alignment], [3, 32])
    t.strictSame(Object.fromEntries(metadata), everyType)
    t.strictSame(
      [...tensors.keys()],
      everyFormat.map(({ name }) => name),
    )
    for (const { name, format, shape, data } of everyFormat) {
      const tensor = tensors.get(name)!
      t.match(tensor, { name, format, shape, count: 3 * shape[1]!, byteLength: data.length })
      t.strictSame(Buffer.from(tensor.read()), Buffer.from(data), `${name}: read`)
      const loaded = await tensor.load()
      t.strictSame(Buffer.from(loaded), Buffer.from(data), `${name}: load`)
      t.equal(loaded.buffer.byteLength, loaded.byteLength, 'memory of its own')
    }
  }
  const again = fileOf('again.gguf')
  const { metadata, tensors } = await readGguf(file)
  await writeGguf(again, { metadata, tensors: tensors.values() })
  t.ok(readFileSync(again).equals(readFileSync(file)), 'a file that was read is written as it is')
})

t.test('alignment', async t => {
  const file = fileOf('aligned.gguf')
  const tensors = ['a', 'b', 'c'].map((name, i) => ({
    name,
    format: 'F32' as const,
    shape: [1],
    values: () => Float32Array.of(i),
  }))
  for (const alignment of [1, 8, 256, 4096]) {
    await writeGguf(file, { metadata: { 'general.alignment': { type: 'u32', value: alignment } }, tensors })
    const read = await readGguf(file)
    t.equal(read.alignment, alignment)
    for (const [i, tensor] of [...read.tensors.values()].entries())
      t.strictSame([...(await tensor.values())], [i])
    t.equal(readFileSync(file).length % alignment, 0, 'padded to the end')
  }
})

t.test('quantizes what it writes', async t => {
  const file = fileOf('quantized.gguf')
  const values = uniform(randomGenerator(5), 2 * 512)
  const formats = ['F16', 'Q8_0', 'Q4_0', 'Q4_K', 'Q6_K'] as const
  await writeGguf(file, {
    tensors: formats.map(format => ({ name: format, format, shape: [2, 512], values: async () => values })),
  })
  const read = await readGguf(file)
  t.strictSame(
    [...read.tensors.values()].map(({ format }) => format),
    formats,
  )
  const worst = async (name: string) =>
    (await read.tensors.get(name)!.values()).reduce(
      (worst, value, i) => Math.max(worst, Math.abs(value - values[i]!)),
      0,
    )
  t.ok((await worst('Q8_0')) <= 0.5 / 127 + 2 ** -11, 'half a step, and the scale in f16')
  t.ok((await worst('Q4_0')) <= 1 / 8 + 1e-3)
  t.ok((await worst('Q6_K')) <= 1 / 32 + 1e-3)
})

t.test('what cannot be written', async t => {
  const file = fileOf('wrong.gguf')
  const refused = async (input: unknown, code: string, message: RegExp) => {
    await t.rejects(writeGguf(file, input as GgufInput), { code, message })
  }
  const value = (type: string, value: unknown, of?: string) => ({ metadata: { k: { type, value, of } } })
  const tensor = (change: object) => ({
    tensors: [{ name: 'w', format: 'F32', shape: [2], values: () => new Float32Array(2), ...change }],
  })
  await refused({ tensor: [] }, 'ERR_ARGUMENT', /no option 'tensor'/)
  await refused(
    value('u8', 256),
    'ERR_ARGUMENT',
    /metadata\['k'\] must be an integer in \[0, 255\] \(u8\), got 256/,
  )
  await refused(value('i32', 0.5), 'ERR_ARGUMENT', /integer/)
  await refused(value('u64', 5), 'ERR_ARGUMENT', /a bigint, got 5/)
  await refused(value('u64', -1n), 'ERR_ARGUMENT', /integer in \[0/)
  await refused(value('u32', 5n), 'ERR_ARGUMENT', /a number/)
  await refused(value('string', 5), 'ERR_ARGUMENT', /a string/)
  await refused(value('bool', 1), 'ERR_ARGUMENT', /true or false/)
  await refused(value('text', 'x'), 'ERR_ARGUMENT', /metadata\['k'\].type must be one of u8/)
  await refused(value('array', [1], 'f32'), 'ERR_ARGUMENT', /a Float32Array/)
  await refused(value('array', [1], 'string'), 'ERR_ARGUMENT', /a string, got 1/)
  await refused(value('array', [[]], 'array'), 'ERR_ARGUMENT', /metadata\['k'\].of/)
  await refused({ metadata: { k: null } }, 'ERR_ARGUMENT', /type and value/)
  await refused(
    {
      metadata: [
        ['k', everyType.u8],
        ['k', everyType.u8],
      ],
    },
    'ERR_ARGUMENT',
    /'k' twice/,
  )
  await refused(
    { metadata: { 'general.alignment': { type: 'u32', value: 24 } } },
    'ERR_ARGUMENT',
    /power of two/,
  )
  await refused(tensor({ name: '' }), 'ERR_ARGUMENT', /tensors\[0\].name/)
  await refused(tensor({ format: 'Q4_K_M' }), 'ERR_ARGUMENT', /tensors\[0\].format must be one of F32/)
  await refused(tensor({ shape: [1, 1, 1, 1, 2] }), 'ERR_ARGUMENT', /at most 4/)
  await refused(tensor({ shape: [-2] }), 'ERR_ARGUMENT', /a size of/)
  await refused(tensor({ shape: [2 ** 30, 2 ** 30] }), 'ERR_SHAPE', /no file can hold/)
  await refused(tensor({ format: 'Q8_0' }), 'ERR_SHAPE', /multiple of 32/)
  await refused(tensor({ shape: [3] }), 'ERR_SHAPE', /3 elements, but values\(\) gave 2/)
  await refused(tensor({ values: 5 }), 'ERR_ARGUMENT', /load\(\) or values\(\)/)
  await refused(tensor({ values: () => [1, 2] }), 'ERR_ARGUMENT', /Float32Array/)
  await refused(tensor({ load: () => new Uint8Array(9) }), 'ERR_SHAPE', /8 bytes, but load\(\) gave 9/)
  await refused(tensor({ load: () => 'x' }), 'ERR_ARGUMENT', /typed array/)
  await refused(
    tensor({ format: 'IQ1_S', shape: [256], values: () => new Float32Array(256) }),
    'ERR_ARGUMENT',
    /one of/,
  )
  await refused({ tensors: [...tensor({}).tensors, ...tensor({}).tensors] }, 'ERR_ARGUMENT', /'w' twice/)
  const nan = () => new Float32Array(32).fill(Number.NaN)
  await refused(tensor({ format: 'Q8_0', shape: [32], values: nan }), 'ERR_NOT_FINITE', /values\[0\]/)
  await t.rejects(writeGguf('', {}), { code: 'ERR_ARGUMENT' })
  t.notOk(
    readdirSync(folder).some(name => name.includes('wrong')),
    'nothing is left',
  )
})

t.test('gguf-py reads what is written', { skip: noGgufPy }, async t => {
  const file = fileOf('oracle.gguf')
  const values = uniform(randomGenerator(7), 512)
  const formats = [
    'F32',
    'F16',
    'BF16',
    'Q4_0',
    'Q4_1',
    'Q5_0',
    'Q5_1',
    'Q8_0',
    'Q4_K',
    'Q5_K',
    'Q6_K',
  ] as const
  await writeGguf(file, {
    metadata: everyType,
    tensors: formats.map(format => ({ name: format, format, shape: [2, 256], values: () => values })),
  })
  const read = fromPython<Record<string, { shape: number[]; format: string; values: number[] }>>(
    `import json, sys
from gguf import GGUFReader, dequantize
reader = GGUFReader(sys.argv[1])
def about(tensor):
    values = dequantize(tensor.data, tensor.tensor_type).ravel()
    return {"shape": [int(size) for size in tensor.shape], "format": tensor.tensor_type.name, "values": [float(value) for value in values]}
print(json.dumps({tensor.name: about(tensor) for tensor in reader.tensors}))`,
    file,
  )
  const { tensors } = await readGguf(file)
  t.strictSame(Object.keys(read), [...tensors.keys()])
  for (const { name, format, shape } of tensors.values()) {
    t.match(read[name], { format, shape: [...shape].reverse() }, name)
    t.strictSame(read[name]!.values, [...(await tensors.get(name)!.values())], `${name}: values`)
  }
  const metadata = fromPython<Record<string, unknown>>(
    `import json, sys
from gguf import GGUFReader
reader = GGUFReader(sys.argv[1])
print(json.dumps({name: field.contents() for name, field in reader.fields.items() if not name.startswith("GGUF.") and name not in ("f32", "array.f32")}))`,
    file,
  )
  for (const [name, { value }] of Object.entries(everyType)) {
    if (name in metadata && typeof value !== 'bigint' && name !== 'array.u64')
      t.same(
        metadata[name],
        ArrayBuffer.isView(value) ? Array.from(value as Uint8Array, Number) : value,
        name,
      )
  }
  t.ok(Object.keys(metadata).length >= 20)
})
