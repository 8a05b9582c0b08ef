// NVFP4 of GGUF files: the same numbers in the layout of kernels, with the scales that files have for them.
import path from 'node:path'
import { type GgufTensorInput, readGguf, writeGguf } from 'dgx-spark'
import t from 'tap'
import { Pacer } from '#lib/core/paced.js'
import { loadGgufWeights } from '#lib/text/files/gguf-weights.js'
import { blockWeight } from '#lib/weights/block-weight.js'
import { decodeBlocks } from '#lib/weights/blocks/decode.js'
import { decodeWeight } from '#lib/weights/encode.js'
import { randomGenerator } from '../fixtures/values/random.js'
import { storedBytes } from '../fixtures/weights/stored-bytes.js'

const random = randomGenerator(7)

/** Blocks of all scales but 480, and all codes. */
function randomBlocks(rows: number, cols: number): Uint8Array {
  const bytes = Uint8Array.from({ length: (rows * cols * 36) / 64 }, () => random() * 256)
  return bytes.map((byte, i) => (i % 36 < 4 && byte === 0xff ? 0x7f : byte))
}

/** Equal numbers; a code of −0 is 0 in blocks. */
const same = (a: Float32Array, b: Float32Array): boolean =>
  a.length === b.length && a.every((value, i) => value === b[i])

const file = path.join(t.testdir(), 'model.gguf')

async function weightsOf(tensors: readonly GgufTensorInput[]) {
  await writeGguf(file, { tensors })
  return loadGgufWeights(await readGguf(file), new Pacer())
}

const matrix = (name: string, shape: readonly number[], blocks: Uint8Array): GgufTensorInput => ({
  name,
  format: 'NVFP4',
  shape,
  load: () => blocks,
})

const floats = (name: string, values: readonly number[]): GgufTensorInput => ({
  name,
  format: 'F32',
  shape: [values.length],
  values: () => Float32Array.from(values),
})

t.test('blocks become codes and scales', t => {
  for (const [rows, cols] of [
    [1, 64],
    [3, 128],
    [37, 192],
  ] as const) {
    const blocks = randomBlocks(rows, cols)
    const weight = blockWeight('NVFP4', rows, cols, storedBytes(blocks)).read()
    t.equal(weight.format, 'nvfp4')
    t.ok(same(decodeWeight(weight), decodeBlocks('NVFP4', blocks)), `[${rows}, ${cols}]`)
  }
  const wrong = new Uint8Array(36)
  wrong[2] = 0xff
  t.throws(() => blockWeight('NVFP4', 1, 64, storedBytes(wrong)).read(), {
    code: 'ERR_FORMAT',
    message: /scale 480/,
  })
  t.end()
})

t.test('scales of files', async t => {
  const blocks = randomBlocks(6, 64)
  const values = decodeBlocks('NVFP4', blocks)
  const weights = await weightsOf([
    matrix('plain.weight', [6, 64], blocks),
    matrix('scaled.weight', [6, 64], blocks),
    floats('scaled.scale', [0.25]),
    matrix('equal.weight', [3, 2, 64], blocks),
    floats('equal.scale', [4, 4, 4]),
    matrix('experts.weight', [3, 2, 64], blocks),
    floats('experts.scale', [0.5, 2, -1]),
  ])
  const formats = { plain: 'nvfp4', scaled: 'nvfp4', equal: 'nvfp4', experts: 'f32' }
  const factors = { plain: [1], scaled: [0.25], equal: [4], experts: [0.5, 2, -1] }
  t.strictSame(weights.names, ['plain.weight', 'scaled.weight', 'equal.weight', 'experts.weight'])
  for (const [name, format] of Object.entries(formats)) {
    const constant = weights.constant(`${name}.weight`)
    t.equal(constant.weight?.shared.format ?? 'f32', format, name)
    const scales = factors[name as keyof typeof factors]
    const size = values.length / scales.length
    const expected = values.map((value, i) => value * scales[Math.floor(i / size)]!)
    t.ok(same(constant.data as Float32Array, expected), name)
  }
})

t.test('scales that do not fit', async t => {
  const blocks = randomBlocks(6, 64)
  for (const [scales, message] of [
    [[1, 2], /tensor 'w\.scale' has 2 scales; expected 3 finite numbers, or one/],
    [[1, Number.NaN, 1], /tensor 'w\.scale' has the scales 1, NaN, 1/],
  ] as const)
    await t.rejects(weightsOf([matrix('w.weight', [3, 2, 64], blocks), floats('w.scale', scales)]), {
      code: 'ERR_FORMAT',
      message,
    })
})
