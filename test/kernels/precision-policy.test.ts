// The precision of products: every backend, mode, kind of product, weight format and activation type.
import t from 'tap'
import { precisions } from '#lib/core/config.js'
import { modeCompute, type Product, productCompute } from '#lib/kernels/precision-policy.js'
import type { FloatCompute } from '#lib/kernels/weight-args.js'
import { blockWeightFormats } from '#lib/weights/formats.js'

const formats = ['f32', 'f16', 'bf16', 'f8_e4m3', 'nvfp4', 'i8'] as const
const types = ['f32', 'f16', 'bf16'] as const
const backends = ['cpu', 'cuda', 'js'] as const

/** Products of a weight with activations of f32, by its format; a convolution has 16 positions in an image. */
const layers: Record<(typeof backends)[number], Record<(typeof formats)[number], FloatCompute>> = {
  js: { f32: 'f32', f16: 'f32', bf16: 'f32', f8_e4m3: 'f32', nvfp4: 'f32', i8: 'f32' },
  cpu: { f32: 'f32', f16: 'f32', bf16: 'bf16', f8_e4m3: 'f32', nvfp4: 'f32', i8: 'f32' },
  cuda: { f32: 'f32', f16: 'f16', bf16: 'bf16', f8_e4m3: 'bf16', nvfp4: 'bf16', i8: 'f32' },
}

/** The 16-bit type that holds the codes of a format. */
const codes: Record<(typeof formats)[number], FloatCompute> = {
  f32: 'f32',
  f16: 'f16',
  bf16: 'bf16',
  f8_e4m3: 'bf16',
  nvfp4: 'bf16',
  i8: 'bf16',
}

/** Calls `body` for each backend and mode, on a CPU that multiplies bf16 and on one that does not. */
function eachTarget(
  body: (compute: (product: Product) => FloatCompute, target: Parameters<typeof productCompute>[0]) => void,
): void {
  for (const backend of backends)
    for (const mode of precisions)
      for (const multipliesBf16 of [true, false]) {
        const target = { backend, mode, multipliesBf16 }
        body(product => productCompute(target, product), target)
      }
}

t.test('layers: the format of the weight decides, in every mode', async t => {
  eachTarget((compute, { backend, multipliesBf16 }) => {
    for (const format of formats) {
      for (const exactIn of [undefined, ...types]) {
        if (format === 'f32' && exactIn) continue
        const operands = [{ exactIn }, { format }]
        const expected = layers[backend][format]
        t.equal(compute({ kind: 'layer', operands }), expected, `${backend}, ${format}`)
        const image = compute({ kind: 'convolution', operands, positions: 16 })
        const isSlow = backend === 'cpu' && !multipliesBf16
        t.equal(image, isSlow ? 'f32' : expected, `${backend}, convolution, ${format}`)
        const adapted = compute({ kind: 'adapter', operands })
        t.equal(adapted, backend === 'cpu' ? 'f32' : expected, `${backend}, beside an adapter, ${format}`)
        const small = compute({ kind: 'convolution', operands, positions: 15 })
        t.equal(small, backend === 'cpu' ? 'f32' : expected, `${backend}, small convolution, ${format}`)
      }
      const exact = [{}, { format, exact: true }]
      for (const kind of ['layer', 'convolution', 'adapter'] as const)
        t.equal(compute({ kind, operands: exact }), 'f32', `${backend}, the codes of a file, ${format}`)
    }
  })
})

t.test('weights in blocks: bf16 on a GPU in every mode but fp32', async t => {
  eachTarget((compute, { backend, mode }) => {
    const rounded = backend === 'cuda' && mode !== 'fp32' ? 'bf16' : 'f32'
    for (const format of blockWeightFormats) {
      const operands = [{}, { format }]
      t.equal(compute({ kind: 'layer', operands }), rounded, `${backend}, ${mode}, ${format}`)
      const others = [
        compute({ kind: 'convolution', operands, positions: 16 }),
        compute({ kind: 'exact', operands }),
        compute({ kind: 'adapter', operands }),
        compute({ kind: 'layer', operands: [{}, { format, exact: true }] }),
      ]
      t.strictSame(others, ['f32', 'f32', 'f32', 'f32'], `${backend}, ${mode}, never rounded, ${format}`)
    }
  })
})

t.test('operands that one 16-bit type holds exactly are multiplied in it on a GPU', async t => {
  eachTarget((compute, { backend }) => {
    for (const a of types) {
      for (const b of types) {
        const operands = [{ exactIn: a }, { exactIn: b, format: 'f32' as const }]
        const expected = backend === 'cuda' && a === b ? a : 'f32'
        for (const kind of ['layer', 'convolution', 'exact'] as const)
          t.equal(compute({ kind, operands }), expected, `${backend}, ${kind}, ${a} by ${b}`)
      }
      for (const format of formats) {
        const operands = [{ exactIn: a }, { exactIn: a }, { format }]
        const expected = backend === 'cuda' && a === codes[format] ? a : 'f32'
        t.equal(compute({ kind: 'exact', operands }), expected, `${backend}, ${a} by a weight of ${format}`)
      }
    }
  })
})

t.test('products of values: exactly where that is possible, as the mode says elsewhere', async t => {
  eachTarget((compute, { backend, mode }) => {
    const rounded = backend === 'cuda' ? modeCompute[mode] : 'f32'
    t.equal(compute({ kind: 'values', operands: [] }), rounded, `${backend}, ${mode}`)
    for (const a of [undefined, 'f16', 'bf16'] as const) {
      for (const b of [undefined, 'f16', 'bf16'] as const) {
        const operands = [{ exactIn: a }, { exactIn: b }]
        const expected = backend === 'cuda' && a && a === b ? a : rounded
        t.equal(compute({ kind: 'values', operands }), expected, `${backend}, ${mode}, ${a} by ${b}`)
      }
    }
  })
})

t.test('tensor cores multiply codes of 8 and 4 bits as bf16', async t => {
  t.same(modeCompute, { fp32: 'f32', fp16: 'f16', bf16: 'bf16', fp8: 'bf16', nvfp4: 'bf16' })
})
