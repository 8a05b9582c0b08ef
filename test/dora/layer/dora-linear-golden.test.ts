// DoRALinear against PEFT: data/peft/linear with the tolerances of its README, on every engine.
import { DoRALinear, type NormGradient, Tensor } from 'dgx-spark'
import t, { type Test } from 'tap'
import { backends } from '../../fixtures/backends.js'
import { close, maxAbs, within } from '../../fixtures/close.js'
import {
  type Lookup,
  type PeftLinearCase,
  peftLinearCases,
  rowsFirst,
} from '../../fixtures/models/peft-linear.js'
import { noGolden } from '../../fixtures/values/golden-bytes.js'
import { type GoldenTensor, goldenFloats } from '../../fixtures/values/golden-values.js'

type Backend = (typeof backends)[number]

/** A tensor as it is stored; [in, out] becomes [out, in]. */
function tensorOf({ dtype, shape, values, bits }: GoldenTensor, transpose = false): Tensor {
  if (dtype === 'BF16' || dtype === 'F16') {
    return Tensor.from(bits, { shape, dtype: dtype === 'F16' ? 'f16' : 'bf16' })
  }
  if (!transpose) return Tensor.from(Float32Array.from(values), { shape })
  return Tensor.from(Float32Array.from(rowsFirst({ shape, values })), { shape: [...shape].reverse() })
}

async function layerOf(
  golden: PeftLinearCase,
  tensors: Lookup,
  backend: Backend,
  normGradient: NormGradient,
) {
  const tensor = (name: string) => tensorOf(tensors(name))
  const weight = tensorOf(tensors('W0'), golden.fan_in_fan_out)
  const bias = golden.bias ? tensor('bias') : undefined
  return DoRALinear.fromLinear(
    { weight, bias },
    {
      rank: golden.r,
      alpha: golden.lora_alpha,
      rslora: golden.use_rslora,
      dropout: golden.dropout_p,
      initial: { a: tensor('A'), b: tensor('B'), magnitude: tensor('m') },
      normGradient,
      backend,
    },
  )
}

async function gradientsOf(
  golden: PeftLinearCase,
  tensors: Lookup,
  backend: Backend,
  normGradient: NormGradient,
) {
  const layer = await layerOf(golden, tensors, backend, normGradient)
  const mask = golden.dropout_p > 0 ? tensors('dropout_mask') : undefined
  const y = await layer.forward(tensorOf(tensors('x')), {
    training: true,
    ...(mask && { mask: tensorOf(mask) }),
  })
  return { layer, y, gradients: await layer.backward(tensorOf(tensors('dy'))) }
}

/** Limits that hold row by row; a dead row has no condition number, its limits are those of condition 1. */
function checkRows(
  t: Test,
  golden: PeftLinearCase,
  tensors: Lookup,
  y: Tensor,
  dm: Tensor,
  merged: Tensor,
): void {
  const { in_features: cols, out_features: rows } = golden
  const values = (name: string) => tensors(name).values
  const m = values('m')
  const dead = golden.special.includes('dead_row')
  const condition = dead ? new Float64Array(rows).fill(1) : values('row_cond_f64')
  const tolerance = condition.map(cond => 1e-6 + 2e-7 * cond)
  const wanted = tensors('W_merged_f64')
  within(
    t,
    merged.toFloat32(),
    golden.fan_in_fan_out ? rowsFirst(wanted) : wanted.values,
    at => tolerance[Math.floor(at / cols)]! * Math.abs(m[Math.floor(at / cols)]!),
    'merged by row',
  )
  const dmScale = dead ? undefined : values('dm_scale_f64')
  if (dmScale) within(t, dm.toFloat32(), values('dm_f64'), o => tolerance[o]! * dmScale[o]!, 'dm by row')
  if (golden.dropout_p > 0 || golden.special.includes('mixed')) return
  const x = values('x')
  const length = (token: number) => Math.hypot(...x.subarray(token * cols, (token + 1) * cols))
  const bias = golden.bias ? values('bias') : undefined
  const limit = (at: number): number => {
    const o = at % rows
    return tolerance[o]! * (length(Math.floor(at / rows)) * Math.abs(m[o]!) + Math.abs(bias?.[o] ?? 0))
  }
  within(t, y.toFloat32(), values('y_f64'), limit, 'y by row')
}

/** Values in x's dtype: exact up to their last rounding. */
function checkRounded(
  t: Test,
  actual: Tensor,
  expected: Float64Array,
  tolerance: number,
  name: string,
): void {
  const epsilon = { f32: 0, bf16: 2 ** -8, f16: 2 ** -11 }[actual.dtype as 'f32' | 'bf16' | 'f16']
  const limit = tolerance * maxAbs(expected)
  within(t, actual.toFloat32(), expected, at => epsilon * Math.abs(expected[at]!) + limit, name)
}

async function checkCase(t: Test, golden: PeftLinearCase, backend: Backend): Promise<void> {
  const tensors = goldenFloats(`peft/linear/${golden.file}`)
  const expected = (name: string) => tensors(`${name}_f64`).values
  const { layer, y, gradients } = await gradientsOf(golden, tensors, backend, 'detached')
  const merged = await layer.mergedWeight()
  const { x: dx, a: da, b: db, magnitude: dm, bias: dbias } = gradients
  t.strictSame(y.shape, tensors('dy').shape)
  t.strictSame(dx!.shape, tensors('x').shape)
  checkRows(t, golden, tensors, y, dm, merged)
  const condition = golden.row_cond_max ?? 1
  const tolerance = condition < 10 ? 2e-6 : 2e-7 * condition
  checkRounded(t, y, expected('y'), tolerance, 'y')
  checkRounded(t, dx!, expected('dx'), tolerance, 'dx')
  close(t, da.toFloat32(), expected('dA'), tolerance, 'dA')
  close(t, db.toFloat32(), expected('dB'), tolerance, 'dB')
  if (golden.special.includes('dead_row')) close(t, dm.toFloat32(), expected('dm'), tolerance, 'dm')
  if (dbias) {
    const dy = tensors('dy').values
    const sums = new Float64Array(golden.out_features)
    dy.forEach((value, at) => {
      sums[at % golden.out_features]! += value
    })
    close(t, dbias.toFloat32(), sums, 2e-6, 'dbias')
  }
  await checkMerge(t, layer, tensorOf(tensors('x')), tolerance)
  if (condition >= 10) return
  const { gradients: exact } = await gradientsOf(golden, tensors, backend, 'exact')
  // With one input feature the exact gradients vanish, and what is left is the rounding of the terms that cancel.
  const scale = (name: string) => maxAbs(expected(golden.in_features === 1 ? name : `${name}_exact`))
  within(t, exact.a.toFloat32(), expected('dA_exact'), () => 2e-6 * scale('dA'), 'dA exact')
  within(t, exact.b.toFloat32(), expected('dB_exact'), () => 2e-6 * scale('dB'), 'dB exact')
  t.strictSame(exact.magnitude, dm, 'dm does not depend on how the norm is differentiated')
  t.strictSame(exact.x, dx, 'neither does dx')
}

/** Merged and unmerged layers compute the same; unmerging restores every bit. */
async function checkMerge(t: Test, layer: DoRALinear, x: Tensor, tolerance: number): Promise<void> {
  layer.eval()
  const before = await layer.forward(x)
  await layer.merge({ precision: 'fp32' })
  checkRounded(t, await layer.forward(x), Float64Array.from(before.toFloat32()), tolerance, 'merged y')
  await layer.unmerge()
  t.strictSame(await layer.forward(x), before, 'unmerged y')
}

for (const backend of backends) {
  t.test(`PEFT linear cases on ${backend}`, { skip: noGolden }, async t => {
    for (const golden of peftLinearCases()) {
      await t.test(golden.id, t => checkCase(t, golden, backend))
    }
  })
}
