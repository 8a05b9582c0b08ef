// Images of chains of convolutions on a GPU: what their plans move and launch, beside counts by hand.
import t from 'tap'
import { chainTraffic } from '../../bench/gpu-static/images.js'

t.test('a chain packs its first image, and writes f32 where its result or a sum needs it', async t => {
  const elements = 128 * 9 * 9
  const sizes = { name: '', size: 9, blocks: 3 }
  const plain = await chainTraffic({ ...sizes, adds: false, block: [[128, 3]] })
  const packed = 4 + 2
  t.strictSame(plain, { launches: 4, bytes: elements * (packed + (2 + 2) + (2 + 2) + (2 + 4)) })
  const block: [number, number][] = [
    [128, 3],
    [128, 3],
  ]
  const added = await chainTraffic({ ...sizes, adds: true, block })
  const [first, second, beside] = [2 + 2, 2 + 4 + 4, 2]
  t.strictSame(added, { launches: 7, bytes: elements * (packed + 3 * (first + second) + 2 * beside) })
})

t.test('a chain in int8 packs its first image, and those that sums write', async t => {
  const elements = 128 * 9 * 9
  const sizes = { name: '', size: 9, blocks: 3, int8: true }
  const plain = await chainTraffic({ ...sizes, adds: false, block: [[128, 3]] })
  const packed = 1 + 1
  t.strictSame(plain, { launches: 4, bytes: elements * (packed + 3 * (1 + 1)) })
  const block: [number, number][] = [
    [128, 3],
    [128, 3],
  ]
  const added = await chainTraffic({ ...sizes, adds: true, block })
  t.strictSame(added, { launches: 12, bytes: elements * 3 * (packed + 2 * (1 + 1) + 3) })
})
