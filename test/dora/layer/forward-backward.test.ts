// What a DoRA layer asks kernels to form its products of: its tensors' own type where a GPU multiplies that exactly.
import type { Kernels } from 'dgx-spark/kernels'
import t from 'tap'
import type { DType } from '#lib/core/dtype.js'
import { computeOf } from '#lib/dora/layer/forward-backward.js'
import type { WeightFormat } from '#lib/weights/weight.js'

const compute = (backend: Kernels['backend'], format: WeightFormat, ...activations: DType[]) =>
  computeOf(backend, { format }, ...activations)

t.test('a GPU multiplies activations of 16 bits and a weight that they hold as they are', async t => {
  for (const dtype of ['bf16', 'f8_e4m3', 'i8', 'nvfp4'] as const) {
    t.equal(compute('cuda', dtype, 'bf16'), 'bf16', `forward, ${dtype}`)
    t.equal(compute('cuda', dtype, 'bf16', 'bf16'), 'bf16', `backward, ${dtype}`)
    t.equal(compute('cuda', dtype, 'f16', 'f16'), 'f32', `${dtype} in f16`)
  }
  t.equal(compute('cuda', 'f16', 'f16', 'f16'), 'f16')
  t.equal(compute('cuda', 'f16', 'bf16', 'bf16'), 'f32')
})

t.test('anything else is multiplied in f32', async t => {
  t.equal(compute('cuda', 'f32', 'bf16', 'bf16'), 'f32', 'a weight of f32')
  t.equal(compute('cuda', 'bf16', 'f32'), 'f32', 'an input of f32')
  t.equal(compute('cuda', 'bf16', 'bf16', 'f32'), 'f32', 'a gradient of f32')
  for (const backend of ['cpu', 'js'] as const)
    t.equal(compute(backend, 'bf16', 'bf16', 'bf16'), 'f32', backend)
})
