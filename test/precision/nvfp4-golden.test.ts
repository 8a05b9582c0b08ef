// NVFP4 recipes and the order of its scales against the golden bytes of ModelOpt, TransformerEngine and torchao.
import { swizzleScales, unswizzleScales } from 'dgx-spark'
import t from 'tap'
import { cast, engines, type Matrix, nvfp4, runJs, sameBits } from '../fixtures/precision-engines.js'
import {
  goldenJson,
  goldenTensors,
  type Lookup,
  matrixOf,
  noGolden,
  type QuantizerCase,
} from '../fixtures/values/golden-bytes.js'

/** The cases whose bytes are a specification, those with tensors of the given peer. */
function cases(prefix: string): { one: QuantizerCase; tensors: Lookup; matrix: Matrix }[] {
  const { cases } = goldenJson<{ cases: QuantizerCase[] }>('nvfp4/cases.json')
  return cases
    .filter(one => !one.informational)
    .map(one => ({ one, tensors: goldenTensors(`nvfp4/${one.file}`) }))
    .filter(({ tensors }) => has(tensors, `${prefix}.packed`))
    .map(({ one, tensors }) => ({ one, tensors, matrix: matrixOf(tensors) }))
}

function has(tensors: Lookup, name: string): boolean {
  try {
    return tensors(name) !== undefined
  } catch {
    return false
  }
}

const number = (tensors: Lookup, name: string): number => (tensors(name).data as Float32Array)[0]
const bytes = (tensors: Lookup, name: string): Uint8Array => tensors(name).data as Uint8Array

t.test('modelopt', { skip: noGolden }, async t => {
  const recipes = cases('modelopt')
  t.ok(recipes.length >= 30, `${recipes.length} cases`)
  for (const { one, tensors, matrix } of recipes) {
    for (const [engine, run] of Object.entries(engines)) {
      const result = nvfp4(run, matrix, { tensorScale: number(tensors, 'modelopt.scale_2') })
      const name = `${engine} ${one.id}`
      sameBits(t, result.blockScale, bytes(tensors, 'modelopt.scale'), `${name} scale`)
      sameBits(t, result.packed, bytes(tensors, 'modelopt.packed'), `${name} packed`)
      sameBits(t, result.dst, tensors('modelopt.dequant').data as Float32Array, `${name} dequant`)
    }
  }
})

t.test('te', { skip: noGolden }, async t => {
  const recipes = cases('te')
  t.ok(recipes.length >= 30, `${recipes.length} cases`)
  for (const { one, tensors, matrix } of recipes) {
    const amax = number(tensors, 'te.amax')
    const scales = { tensorScale: Math.fround(amax / 2688), encodeScale: Math.fround(2688 / amax) }
    for (const [engine, run] of Object.entries(engines)) {
      const result = nvfp4(run, matrix, { recipe: 'te', ...scales })
      sameBits(t, result.blockScale, bytes(tensors, 'te.scale'), `${engine} ${one.id} scale`)
      sameBits(t, result.packed, bytes(tensors, 'te.packed'), `${engine} ${one.id} packed`)
    }
  }
})

t.test('mse is as good as a sweep over all scales', { skip: noGolden }, async t => {
  const recipes = cases('modelopt_mse')
  t.ok(recipes.length >= 10, `${recipes.length} cases`)
  const total = { ours: 0, sweep: 0, modelopt: 0 }
  for (const { one, tensors, matrix } of recipes) {
    const tensorScale = number(tensors, 'modelopt_mse.scale_2')
    const values = cast(runJs, matrix.src, matrix.srcDtype, 'f32') as Float32Array
    const power = values.reduce((sum, value) => sum + value ** 2, 0)
    const error = (decoded: ArrayLike<number>): number =>
      values.reduce((sum, value, i) => sum + (value - decoded[i]) ** 2, 0) / (power || 1)
    const sweep = error(tensors('modelopt_mse.dequant').data as Float32Array)
    const plain = error(nvfp4(runJs, matrix, { tensorScale }).dst)
    for (const [engine, run] of Object.entries(engines)) {
      const ours = error(nvfp4(run, matrix, { recipe: 'mse', tensorScale }).dst)
      t.ok(ours <= plain, `${engine} ${one.id}: ${ours} is not above modelopt's ${plain}`)
      if (run !== runJs) continue
      total.ours += ours
      total.sweep += sweep
      total.modelopt += plain
    }
  }
  const ratio = total.ours / total.sweep
  t.ok(ratio <= 1.001, `squared error ${ratio.toFixed(5)} of the sweep's`)
  t.ok(total.ours < 0.85 * total.modelopt, `and ${(total.ours / total.modelopt).toFixed(3)} of modelopt's`)
})

t.test('swizzled scales', { skip: noGolden }, async t => {
  const { shapes } = goldenJson<{ shapes: { rows: number; cols: number }[] }>('nvfp4/swizzle.json')
  const tensors = goldenTensors('nvfp4/swizzle.safetensors')
  for (const { rows, cols } of shapes) {
    const linear = bytes(tensors, `${rows}x${cols}.linear`)
    const swizzled = bytes(tensors, `${rows}x${cols}.swizzled`)
    sameBits(t, swizzleScales(linear, rows, cols), swizzled, `${rows} x ${cols}`)
    sameBits(t, unswizzleScales(swizzled, rows, cols), linear, `${rows} x ${cols} back`)
  }
})
