// Parts of weights have the elements of the whole, in their format; blocks are not cut.
import { Tensor } from 'dgx-spark'
import t from 'tap'
import { decodeWeight, storeWeight } from '#lib/weights/encode.js'
import { sliceWeight, whyUncut } from '#lib/weights/slice.js'
import type { Weight } from '#lib/weights/weight.js'

const [rows, cols] = [6, 64]
const values = Float32Array.from({ length: rows * cols }, (_, i) => Math.sin(i) * (1 + (i % 7)))
const halves = [
  { begin: 0, end: 16 },
  { begin: 32, end: 48 },
]

for (const precision of ['fp32', 'fp16', 'bf16', 'fp8', 'nvfp4'] as const)
  t.test(precision, async t => {
    const weight = storeWeight(Tensor.from(values, { shape: [rows, cols] }), precision)
    const whole = decodeWeight(weight)
    const picked = [1, 4, 5]
    const part = sliceWeight(
      weight,
      [
        { begin: 1, end: 2 },
        { begin: 4, end: 6 },
      ],
      halves,
    ) as Weight
    t.same([part.format, part.rows, part.cols], [weight.format, 3, 32])
    const columns = Array.from({ length: cols }, (_, c) => c).filter(c =>
      halves.some(h => c >= h.begin && c < h.end),
    )
    const expected = picked.flatMap(r => columns.map(c => whole[r * cols + c]!))
    t.strictSame(Array.from(decodeWeight(part)), expected)
    t.equal(whyUncut(weight, undefined, halves), undefined)
  })

t.test('what would cut a block is refused with its columns', async t => {
  const columns = [{ begin: 8, end: 24 }]
  t.match(
    whyUncut({ format: 'nvfp4' }, undefined, columns),
    /columns 8 to 24 .* inside of a block of 16 \(nvfp4\)/,
  )
  t.match(whyUncut({ format: 'q4_k' }, undefined, [{ begin: 0, end: 128 }]), /block of 256/)
  t.match(whyUncut({ format: 'f8_e4m3_block' }, columns, undefined), /squares/)
  t.equal(whyUncut({ format: 'q4_k' }, columns, undefined), undefined)
})
