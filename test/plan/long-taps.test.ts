// Taps of long axes, which kernels compute, are those of short ones, which JavaScript does: bit for bit.
import t from 'tap'
import { float, int, ints, string } from '#lib/graph/attributes.js'
import { Constant } from '#lib/graph/constant.js'
import { makeGraph, makeNode, tensorType } from '#lib/graph/graph.js'
import { openKernels } from '#lib/kernels/open.js'
import { compile } from '#lib/plan/compile.js'
import { resizeTaps, type TapRule } from '#lib/plan/lower/resize-taps.js'
import { Plan } from '#lib/plan/plan.js'
import { backends } from '../fixtures/backends.js'

const [size, out] = [700, 1531]

const rules: TapRule[] = []
const rule = { excludesOutside: false, antialiases: false, cubic: -0.75, beyond: 0, expectTaps() {} }
const transforms = [
  'half_pixel',
  'align_corners',
  'asymmetric',
  'pytorch_half_pixel',
  'tf_half_pixel_for_nn',
  'half_pixel_symmetric',
]
for (const transform of transforms)
  for (const nearestMode of ['round_prefer_floor', 'round_prefer_ceil', 'floor', 'ceil'])
    rules.push({ ...rule, mode: 'nearest', nearestMode, transform })
for (const transform of transforms)
  for (const mode of ['linear', 'cubic'])
    for (const excludesOutside of [false, true])
      rules.push({
        ...rule,
        mode,
        nearestMode: 'floor',
        transform,
        excludesOutside,
        cubic: excludesOutside ? -0.5 : -0.75,
      })

/** y = x resized along its last axis. */
function graphOf({ mode, nearestMode, transform, excludesOutside, cubic }: TapRule, end = out) {
  const attributes = {
    axes: ints([1]),
    mode: string(mode),
    nearest_mode: string(nearestMode),
    coordinate_transformation_mode: string(transform),
    exclude_outside: int(excludesOutside ? 1 : 0),
    cubic_coeff_a: float(cubic),
  }
  return makeGraph({
    inputs: [{ name: 'x', type: tensorType('f32', [1, size]) }],
    outputs: [{ name: 'y' }],
    nodes: [makeNode('Resize', ['x', '', '', 'sizes'], ['y'], { attributes })],
    initializers: new Map([['sizes', Constant.from('i64', [1], BigInt64Array.of(BigInt(end)))]]),
  })
}

for (const backend of backends) {
  t.test(`long taps on ${backend}`, async t => {
    const kernels = await openKernels({ backend })
    const x = Float32Array.from({ length: size }, (_, i) => Math.sin(i * i))
    for (const rule of rules) {
      using plan = await Plan.create(graphOf(rule), kernels)
      const y = new Float32Array((await plan.run({ x })).y as Float32Array)
      const { taps, weights, count } = resizeTaps(rule, { size, out, scale: out / size, window: [0, 1] })
      const expected = new Float32Array(out)
      const args = {
        outer: 1,
        size,
        inner: 1,
        out,
        count,
        x,
        y: expected,
        taps: Int32Array.from(taps),
        weights: Float32Array.from(weights),
      }
      await kernels.run('resample', args as never)
      const { mode, nearestMode, transform, excludesOutside } = rule
      t.ok(
        y.every((value, i) => Object.is(value, expected[i])),
        `${[mode, nearestMode, transform, excludesOutside]}`,
      )
    }
  })
}

t.test('nothing of the long axis is in a list', async t => {
  for (const rule of rules) {
    const { setup, sizing, steps } = compile(graphOf(rule))
    t.ok(setup.length + sizing.length > 3, 'kernels compute the taps')
    t.equal(steps.length, 1)
  }
  const kept = compile(graphOf({ ...rules[0]!, nearestMode: 'ceil' }, size))
  t.equal(kept.steps.filter(({ op }) => op === 'resample').length, 0, 'a short axis that stays')
})
