// The block formats of GGUF: decoding bit for bit as gguf-py decodes, quantizers and their errors.
import { spawnSync } from 'node:child_process'
import { readFileSync } from 'node:fs'
import path from 'node:path'
import { parseSafetensors, type SafetensorsTensor } from 'dgx-spark'
import t, { type Test } from 'tap'
import { decodeBlocks, decodedFormats } from '#lib/weights/blocks/decode.js'
import { type EncodedFormat, encodeBlocks, encodedFormats } from '#lib/weights/blocks/encode.js'
import { type BlockFormat, blockFormats } from '#lib/weights/blocks/formats.js'
import { grids, vectorsOf } from '#lib/weights/blocks/grids.js'
import { noGgufPy, python } from '../fixtures/gguf/gguf-py.js'
import { header, headerPath } from '../fixtures/gguf/native-grids.js'
import { noGolden } from '../fixtures/values/golden-bytes.js'
import { normal, randomGenerator } from '../fixtures/values/random.js'

const root = process.env.DGX_SPARK_TEST_DATA ?? ''

/** The tensors of a golden file. */
const golden = (file: string): ReadonlyMap<string, SafetensorsTensor> =>
  parseSafetensors(readFileSync(path.join(root, file)), file).tensors

/** Index of the first element that differs in any bit, two NaNs being equal; -1 when none does. */
const firstDifference = (a: Float32Array, b: Float32Array): number =>
  a.length === b.length ? a.findIndex((value, i) => !Object.is(value, b[i])) : Math.min(a.length, b.length)

function decodesTo(
  t: Test,
  name: string,
  format: BlockFormat,
  bytes: Uint8Array,
  values: Float32Array,
): void {
  const decoded = decodeBlocks(format, bytes)
  const i = firstDifference(decoded, values)
  t.equal(i, -1, `${name}: element ${i} of ${values.length} is ${decoded[i]}, not ${values[i]}`)
}

/** Formats without a decoder: no file has the first two, gguf-py cannot read the others either. */
const undecoded: readonly BlockFormat[] = ['Q8_1', 'Q8_K', 'Q1_0', 'Q2_0']

t.test('decoding: random blocks', { skip: noGolden }, async t => {
  const tensors = golden('llm/gguf-quants/golden.safetensors')
  const seen = new Set<string>()
  for (const [key, { data }] of tensors) {
    const [, format = '', kind] = /^(\w+)\.(bytes|quantized)$/.exec(key) ?? []
    if (!kind) continue
    const values = tensors.get(kind === 'bytes' ? `${format}.values` : `${format}.quantized_values`)!
    decodesTo(t, key, format as BlockFormat, data as Uint8Array, values.data as Float32Array)
    seen.add(format)
  }
  t.equal(seen.size, 25)
})

t.test('decoding: more blocks', { skip: noGolden }, async t => {
  const tensors = golden('lm-golden/gguf-blocks/golden.safetensors')
  const seen = new Set<string>()
  for (const [key, { data }] of tensors) {
    const format = /^(\w+)\.blocks$/.exec(key)?.[1]
    if (!format) continue
    const values = tensors.get(`${format}.values`)!
    decodesTo(t, key, format as BlockFormat, data as Uint8Array, values.data as Float32Array)
    seen.add(format)
  }
  t.equal(seen.size, 24)
})

t.test('decoding: scalars', async t => {
  const bytesOf = ({ buffer }: ArrayBufferView): Uint8Array => new Uint8Array(buffer as ArrayBuffer)
  const decoded = (format: BlockFormat, array: ArrayBufferView) => [...decodeBlocks(format, bytesOf(array))]
  t.strictSame(decoded('F32', Float32Array.of(1.5, -2)), [1.5, -2])
  t.strictSame(decoded('F64', Float64Array.of(0.1, -2)), [Math.fround(0.1), -2])
  t.strictSame(decoded('F16', Uint16Array.of(0x3c00, 0xfc00)), [1, -Infinity])
  t.strictSame(decoded('BF16', Uint16Array.of(0x3f80, 0xc000)), [1, -2])
  t.strictSame(decoded('I8', Int8Array.of(-128, 127)), [-128, 127])
  t.strictSame(decoded('I16', Int16Array.of(-32_768, 5)), [-32_768, 5])
  t.strictSame(decoded('I32', Int32Array.of(2 ** 24 + 1, -5)), [2 ** 24, -5])
  t.strictSame(decoded('I64', BigInt64Array.of(-(2n ** 40n), 5n)), [-(2 ** 40), 5])
  const misaligned = new Uint8Array([0, ...bytesOf(Float32Array.of(3.25))]).subarray(1)
  t.strictSame([...decodeBlocks('F32', misaligned)], [3.25])
})

t.test('every format is decoded, or said not to be', async t => {
  const all = Object.keys(blockFormats) as BlockFormat[]
  t.strictSame(
    all.filter(format => !decodedFormats.includes(format)),
    all.filter(format => undecoded.includes(format)),
  )
  for (const format of all) {
    const { elements, bytes } = blockFormats[format]
    if (undecoded.includes(format)) {
      t.throws(() => decodeBlocks(format, new Uint8Array(bytes)), {
        code: 'ERR_UNSUPPORTED',
        message: format,
      })
      continue
    }
    t.equal(decodeBlocks(format, new Uint8Array(0)).length, 0)
    const [one, two] = [1, 2].map(blocks => decodeBlocks(format, new Uint8Array(blocks * bytes).fill(0x35)))
    t.equal(two!.length, 2 * elements)
    t.strictSame(two!.subarray(elements), one, `${format}: equal blocks are equal numbers`)
    if (bytes > 1) {
      t.throws(() => decodeBlocks(format, new Uint8Array(bytes + 1)), { code: 'ERR_SHAPE', message: format })
    }
  }
  t.throws(() => decodeBlocks('Q4_K_M' as BlockFormat, new Uint8Array()), {
    code: 'ERR_ARGUMENT',
    message: 'Q4_K',
  })
  t.throws(() => decodeBlocks('F32', [1] as never), { code: 'ERR_ARGUMENT', message: 'bytes' })
})

t.test('quantizers are those of the reference', { skip: noGolden }, async t => {
  const check = (name: string, format: EncodedFormat, values: Float32Array, bytes: Uint8Array): void => {
    const encoded = encodeBlocks(format, values)
    const i = encoded.findIndex((byte, i) => byte !== bytes[i])
    t.ok(i === -1 && encoded.length === bytes.length, `${name}: byte ${i}`)
  }
  const first = golden('llm/gguf-quants/golden.safetensors')
  const second = golden('lm-golden/gguf-blocks/golden.safetensors')
  const source = first.get('source')!.data as Float32Array
  for (const format of ['F16', 'BF16', 'Q4_0', 'Q4_1', 'Q5_0', 'Q5_1', 'Q8_0'] as const) {
    check(`${format} 1`, format, source, first.get(`${format}.quantized`)!.data as Uint8Array)
    const input = second.get(`${format}.quantize_input`)?.data as Float32Array | undefined
    if (input)
      check(`${format} 2`, format, input, second.get(`${format}.quantize_blocks`)!.data as Uint8Array)
  }
})

/** ‖decoded − values‖ / ‖values‖ of normal numbers, about 1.3 times what it is: a wrong bit or scale makes more. */
const errors: Readonly<Record<Exclude<EncodedFormat, 'F32'>, number>> = {
  F16: 3e-4,
  BF16: 2.2e-3,
  Q4_0: 0.12,
  Q4_1: 0.1,
  Q5_0: 0.06,
  Q5_1: 0.048,
  Q8_0: 0.0075,
  Q4_K: 0.1,
  Q5_K: 0.05,
  Q6_K: 0.025,
}

t.test('round trips', async t => {
  const values = normal(randomGenerator(18), 64 * 256)
  t.strictSame(decodeBlocks('F32', encodeBlocks('F32', values)), values)
  for (const [format, bound] of Object.entries(errors) as [Exclude<EncodedFormat, 'F32'>, number][]) {
    const bytes = encodeBlocks(format, values)
    t.equal(bytes.length, (values.length / blockFormats[format].elements) * blockFormats[format].bytes)
    const decoded = decodeBlocks(format, bytes)
    const [error, norm] = [0, 0].map((_, which) =>
      Math.sqrt(values.reduce((sum, value, i) => sum + (which ? value : decoded[i]! - value) ** 2, 0)),
    )
    t.ok(error! / norm! < bound && error! / norm! > bound / 3, `${format}: ${error! / norm!}, bound ${bound}`)
  }
})

t.test('blocks of one number, of zeros, of one sign', async t => {
  for (const format of encodedFormats) {
    const { elements } = blockFormats[format]
    const of = (codeOf: (i: number) => number) =>
      Float32Array.from({ length: Math.max(elements, 32) }, (_, i) => codeOf(i))
    const decoded = (values: Float32Array) => decodeBlocks(format, encodeBlocks(format, values))
    t.ok(
      decoded(of(() => 0)).every(value => value === 0),
      `${format}: zeros`,
    )
    for (const number of [1, -3]) {
      const near = decoded(of(() => number))
      t.ok(
        near.every(value => Math.abs(value - number) <= 0.02 * Math.abs(number)),
        `${format}: ${number}`,
      )
    }
    const positive = decoded(of(i => 1 + i / 64))
    const worst = positive.reduce((worst, value, i) => Math.max(worst, Math.abs(value - 1 - i / 64)), 0)
    // Half a step where the range from 0 to 5 has at least 8 steps.
    t.ok(worst <= 5 / 8 / 2, `${format}: off by ${worst}`)
  }
})

t.test('what cannot be encoded', async t => {
  const values = new Float32Array(256)
  t.throws(() => encodeBlocks('Q4_K', values.subarray(0, 255)), { code: 'ERR_SHAPE', message: '255 values' })
  t.throws(() => encodeBlocks('IQ1_S' as never, values), { code: 'ERR_ARGUMENT', message: 'Q4_K' })
  t.throws(() => encodeBlocks('Q4_0', [1] as never), { code: 'ERR_ARGUMENT' })
  for (const format of encodedFormats.filter(format => format.startsWith('Q'))) {
    t.throws(() => encodeBlocks(format, values.with(40, Number.NaN)), {
      code: 'ERR_NOT_FINITE',
      message: 'values[40]',
    })
    t.throws(
      () => encodeBlocks(format, values.with(200, 1e30)),
      { code: 'ERR_RANGE', message: /values\[\d+\]/ },
      format,
    )
  }
})

t.test('grids', async t => {
  const rows = { IQ2_XXS: 256, IQ2_XS: 512, IQ2_S: 1024, IQ3_XXS: 256, IQ3_S: 512, IQ1_S: 2048 }
  for (const [name, count] of Object.entries(rows) as [keyof typeof grids, number][])
    t.equal(vectorsOf(name).length, count * grids[name].size, name)
})

t.test('native kernels have the same grids', t => {
  t.equal(readFileSync(headerPath, 'utf8'), header(), 'run test/fixtures/gguf/native-grids.js')
  t.end()
})

t.test('grids are those of gguf-py', { skip: noGgufPy }, async t => {
  const { status, stdout, stderr } = spawnSync(
    python,
    [path.join(import.meta.dirname, '../fixtures/gguf/grids.py')],
    {
      encoding: 'utf8',
    },
  )
  t.equal(status, 0, stderr)
  t.same(JSON.parse(stdout), grids)
})
