// The gradients of a merged DoRA weight: the CPU against TypeScript, which test/graph checks by finite differences.
import t from 'tap'
import { jsKernels } from '#lib/kernels/js/js.js'
import { requireAddon } from '#lib/native.js'
import { close } from '../fixtures/close.js'
import { agree } from '../fixtures/kernel-pair.js'
import { randomGenerator, uniform } from '../fixtures/values/random.js'

const addon = requireAddon()
t.teardown(() => addon.setThreads(0))

for (const [rows, cols, rank] of [
  [1, 2, 1],
  [7, 27, 3],
  [65, 301, 4],
  [130, 513, 17],
] as const) {
  for (const exactNorm of [false, true]) {
    t.test(`[${rows}, ${cols}], rank ${rank}${exactNorm ? ', exact norm' : ''}`, t => {
      const random = randomGenerator(rows)
      const f32 = (count: number): Float32Array => uniform(random, count)
      const weight = { format: 'f32' as const, rows, cols, data: f32(rows * cols) }
      const lowRank = { rank, scale: 1.5, a: f32(rank * cols), b: f32(rows * rank) }
      const [norm, gain, weightNorm2] = [f32(rows), f32(rows), f32(rows)]
      jsKernels.runSync('weightNorm2', { weight, out: weightNorm2 })
      jsKernels.runSync('doraNorm', { weight, ...lowRank, weightNorm2, magnitude: f32(rows), norm, gain })
      const args = { weight, ...lowRank, exactNorm, dmerged: f32(rows * cols), norm, gain }
      const outputs = () => ({
        dv: new Float32Array(rows * cols),
        da: new Float32Array(rank * cols),
        db: new Float32Array(rows * rank),
        dmagnitude: new Float32Array(rows),
      })
      const [js, one, three] = [outputs(), outputs(), outputs()]
      jsKernels.runSync('doraMergeBackward', { ...args, ...js })
      addon.setThreads(1)
      addon.run('doraMergeBackward', { ...args, ...one })
      addon.setThreads(3)
      addon.run('doraMergeBackward', { ...args, ...three })
      for (const name of ['dv', 'da', 'db', 'dmagnitude'] as const) close(t, one[name], js[name], 3e-6, name)
      t.same(three, one, 'does not depend on the threads')
      t.end()
    })
  }
}

t.test('more terms than a sum has in a chain', t => {
  const [rows, cols, rank] = [37, 83, 300]
  const random = randomGenerator(5)
  const f32 = (count: number): Float32Array => uniform(random, count)
  const weight = { format: 'f32' as const, rows, cols, data: f32(rows * cols) }
  const lowRank = { rank, scale: 0.5, a: f32(rank * cols), b: f32(rows * rank) }
  const args = { weight, ...lowRank, gain: f32(rows), merged: new Float32Array(rows * cols) }
  agree(t, 'doraMerge', args, ['merged'], 1e-6, `rank ${rank}`)
  t.end()
})

t.test('a result that no cache holds, at any address', t => {
  const [rows, cols, rank] = [2049, 8192, 3]
  const random = randomGenerator(6)
  const f32 = (count: number): Float32Array => uniform(random, count)
  const data = new Float32Array(rows * cols).map((_, i) => (i * 7919) % 1013)
  const weight = { format: 'f32' as const, rows, cols, data }
  const lowRank = { rank, scale: 2, a: f32(rank * cols), b: f32(rows * rank) }
  const gain = f32(rows)
  const room = new Float32Array(rows * cols + 17)
  for (const start of [0, 1, 13]) {
    const merged = room.fill(Number.NaN).subarray(start, start + rows * cols)
    addon.run('doraMerge', { weight, ...lowRank, gain, merged })
    let worst = 0
    for (let o = 0; o < rows; o += o === rows - 2 ? 1 : 31) {
      for (let i = 0; i < cols; i++) {
        let value = data[o * cols + i]!
        for (let r = 0; r < rank; r++) value += 2 * lowRank.b[o * rank + r]! * lowRank.a[r * cols + i]!
        const error = Math.abs(merged[o * cols + i]! - gain[o]! * value)
        worst = error <= worst ? worst : error // a NaN stays
      }
    }
    t.ok(worst < 1e-3, `from element ${start} on: differs by ${worst}`)
    t.ok(Number.isNaN(room[start + rows * cols]!), 'nothing is written behind it')
    t.ok(start === 0 || Number.isNaN(room[start - 1]!), 'nor before')
    t.notOk(merged.some(Number.isNaN), 'every element is written')
  }
  t.end()
})
