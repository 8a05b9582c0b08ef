// The DoRA kernels against PEFT: data/peft/linear with the tolerances of its README.
import t, { type Test } from 'tap'
import type { Weight } from '#lib/kernels/kernels.js'
import { requireAddon } from '#lib/native.js'
import { close, maxAbs, within } from '../fixtures/close.js'
import { type DoraLayer, type DoraResult, runDora } from '../fixtures/models/dora-layer.js'
import {
  type Lookup,
  type PeftLinearCase,
  peftLinearCases,
  rowsFirst,
} from '../fixtures/models/peft-linear.js'
import { noGolden } from '../fixtures/values/golden-bytes.js'
import { type GoldenTensor, goldenFloats } from '../fixtures/values/golden-values.js'

function storedWeight(
  { fan_in_fan_out, out_features, in_features }: PeftLinearCase,
  tensor: GoldenTensor,
): Weight {
  const size = { rows: out_features, cols: in_features }
  if (tensor.dtype === 'BF16') return { ...size, format: 'bf16', data: tensor.bits }
  if (tensor.dtype === 'F16') return { ...size, format: 'f16', data: tensor.bits }
  const values = fan_in_fan_out ? rowsFirst(tensor) : tensor.values
  return { ...size, format: 'f32', data: Float32Array.from(values) }
}

function layerOf(golden: PeftLinearCase, tensor: Lookup, exactNorm: boolean): DoraLayer {
  const floats = (name: string) => Float32Array.from(tensor(name).values)
  return {
    weight: storedWeight(golden, tensor('W0')),
    rank: golden.r,
    scale: golden.scaling,
    a: floats('A'),
    b: floats('B'),
    magnitude: floats('m'),
    bias: golden.bias ? floats('bias') : undefined,
    mask: golden.dropout_p > 0 ? floats('dropout_mask') : undefined,
    tokens: tensor('dy').values.length / golden.out_features,
    x: floats('x'),
    dy: floats('dy'),
    exactNorm,
  }
}

/** Limits that hold row by row; a dead row has no condition number, its limits are those of condition 1. */
function checkRows(
  t: Test,
  golden: PeftLinearCase,
  layer: DoraLayer,
  tensor: Lookup,
  result: DoraResult,
): void {
  const { weight, x, magnitude, bias } = layer
  const { rows, cols } = weight
  const dead = golden.special.includes('dead_row')
  const condition = dead ? new Float64Array(rows).fill(1) : tensor('row_cond_f64').values
  const tolerance = condition.map(cond => 1e-6 + 2e-7 * cond)
  const merged = tensor('W_merged_f64')
  within(
    t,
    result.merged,
    golden.fan_in_fan_out ? rowsFirst(merged) : merged.values,
    at => tolerance[Math.floor(at / cols)] * Math.abs(magnitude[Math.floor(at / cols)]),
    'merged by row',
  )
  const norm = tensor('norm_f64').values
  within(t, result.norm, norm, o => tolerance[o] * norm[o], 'norm')
  if (!dead) {
    const dmScale = tensor('dm_scale_f64').values
    within(t, result.dmagnitude, tensor('dm_f64').values, o => tolerance[o] * dmScale[o], 'dm by row')
  }
  if (layer.mask) return
  const length = (token: number) => Math.hypot(...x.subarray(token * cols, (token + 1) * cols))
  within(
    t,
    result.y,
    tensor('y_f64').values,
    at => {
      const o = at % rows
      return (
        tolerance[o] * (length(Math.floor(at / rows)) * Math.abs(magnitude[o]) + Math.abs(bias?.[o] ?? 0))
      )
    },
    'y by row',
  )
}

function checkCase(t: Test, golden: PeftLinearCase): void {
  const tensor = goldenFloats(`peft/linear/${golden.file}`)
  const expected = (name: string) => tensor(`${name}_f64`).values
  const layer = layerOf(golden, tensor, false)
  const result = runDora(requireAddon(), layer)
  checkRows(t, golden, layer, tensor, result)
  const condition = golden.row_cond_max ?? 1
  const tolerance = condition < 10 ? 2e-6 : 2e-7 * condition
  close(t, result.y, expected('y'), tolerance, 'y')
  close(t, result.dx, expected('dx'), tolerance, 'dx')
  close(t, result.da, expected('dA'), tolerance, 'dA')
  close(t, result.db, expected('dB'), tolerance, 'dB')
  if (golden.special.includes('dead_row')) close(t, result.dmagnitude, expected('dm'), tolerance, 'dm')
  if (condition >= 10) return
  const exact = runDora(requireAddon(), layerOf(golden, tensor, true))
  // With one input feature the exact gradients vanish, and what is left is the rounding of the two terms that cancel.
  const vanishing = golden.in_features === 1
  const scale = (name: string) => maxAbs(expected(vanishing ? name : `${name}_exact`))
  const [scaleA, scaleB] = [scale('dA'), scale('dB')]
  within(t, exact.da, expected('dA_exact'), () => 2e-6 * scaleA, 'dA exact')
  within(t, exact.db, expected('dB_exact'), () => 2e-6 * scaleB, 'dB exact')
  t.same(exact.dmagnitude, result.dmagnitude, 'dm does not depend on how the norm is differentiated')
  t.same(exact.dx, result.dx, 'neither does dx')
}

t.test('PEFT linear cases', { skip: noGolden }, t => {
  for (const golden of peftLinearCases()) {
    t.test(golden.id, t => {
      checkCase(t, golden)
      t.end()
    })
  }
  t.end()
})
