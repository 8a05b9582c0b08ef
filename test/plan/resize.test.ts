// Resize: axes that stay as they are take no step, and positions outside of a cropped axis are the extrapolation value.
import t from 'tap'
import { float, string } from '#lib/graph/attributes.js'
import { Constant } from '#lib/graph/constant.js'
import { type Attribute, makeGraph, makeNode, tensorType } from '#lib/graph/graph.js'
import { openKernels } from '#lib/kernels/open.js'
import { compile } from '#lib/plan/compile.js'
import { Plan } from '#lib/plan/plan.js'

interface Resize {
  shape: readonly number[]
  scales: readonly number[]
  roi?: readonly number[]
  attributes: Record<string, Attribute>
}

function graphOf({ shape, scales, roi = [], attributes }: Resize) {
  return makeGraph({
    inputs: [{ name: 'x', type: tensorType('f32', shape) }],
    outputs: [{ name: 'y' }],
    nodes: [makeNode('Resize', ['x', 'roi', 'scales'], ['y'], { attributes })],
    initializers: new Map([
      ['roi', Constant.from('f32', [roi.length], Float32Array.from(roi))],
      ['scales', Constant.from('f32', [scales.length], Float32Array.from(scales))],
    ]),
  })
}

const stepsOf = (resize: Resize): number =>
  compile(graphOf(resize), { backend: 'cpu' }).steps.filter(({ op }) => op === 'resample').length

t.test('axes that stay as they are take no step', t => {
  const transforms = [
    'half_pixel',
    'half_pixel_symmetric',
    'pytorch_half_pixel',
    'asymmetric',
    'align_corners',
  ]
  for (const mode of ['nearest', 'linear', 'cubic']) {
    for (const transform of transforms) {
      const attributes = { mode: string(mode), coordinate_transformation_mode: string(transform) }
      for (const shape of [
        [2, 3, 4, 5],
        [1, 2000, 4, 5],
      ]) {
        const label = `${mode}, ${transform}, ${shape}`
        t.equal(stepsOf({ shape, scales: [1, 1, 2, 2], attributes }), 2, label)
        t.equal(stepsOf({ shape, scales: [1, 1, 1, 3], attributes }), 1, label)
      }
    }
    const moved = { mode: string(mode), coordinate_transformation_mode: string('tf_half_pixel_for_nn') }
    const steps = stepsOf({ shape: [4], scales: [1], attributes: moved })
    t.equal(steps, mode === 'nearest' ? 0 : 1, 'by half a position')
  }
  t.end()
})

t.test('an axis that stays as it is keeps what is beside infinite elements', async t => {
  const attributes = { mode: string('linear') }
  const graph = graphOf({ shape: [2, 2], scales: [1, 2], attributes })
  for (const backend of ['cpu', 'js'] as const) {
    using plan = await Plan.create(graph, await openKernels({ backend }))
    const { y } = await plan.run({ x: Float32Array.of(0, 1, Number.POSITIVE_INFINITY, 2) })
    t.strictSame([...(y as Float32Array)].slice(0, 4), [0, 0.25, 0.75, 1], backend)
  }
})

t.test('a cropped axis as long as before is what it was, but for positions outside', async t => {
  const crop = (start: number): Resize => ({
    shape: [4],
    scales: [1],
    roi: [start, 1],
    attributes: {
      mode: string('nearest'),
      coordinate_transformation_mode: string('tf_crop_and_resize'),
      extrapolation_value: float(-7),
    },
  })
  t.equal(stepsOf(crop(0)), 0)
  for (const backend of ['cpu', 'js'] as const) {
    using plan = await Plan.create(graphOf(crop(-0.1)), await openKernels({ backend }))
    const { y } = await plan.run({ x: Float32Array.of(1, 2, 3, 4) })
    t.strictSame([...(y as Float32Array)], [-7, 2, 3, 4], backend)
  }
})
