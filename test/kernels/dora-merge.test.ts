// The gradients of a merged DoRA weight: the CPU against TypeScript, which test/graph checks by finite differences.
import t from 'tap'
import { requireAddon } from '#lib/native.js'
import { jsKernels } from '#lib/runtime/js/js.js'
import { close } from '../fixtures/close.js'
import { randomGenerator, uniform } from '../fixtures/random.js'

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
      const weight = { dtype: 'f32' as const, rows, cols, data: f32(rows * cols) }
      const lowRank = { rank, scale: 1.5, a: f32(rank * cols), b: f32(rows * rank) }
      const [norm, gain, weightNorm2] = [f32(rows), f32(rows), f32(rows)]
      jsKernels.runSync('weightNorm2', { weight, out: weightNorm2 })
      jsKernels.runSync('doraNorm', { weight, ...lowRank, weightNorm2, magnitude: f32(rows), norm, gain })
      const args = { weight, ...lowRank, exactNorm, dmerged: f32(rows * cols), norm, gain }
      const outputs = () => ({
        ...{ dv: new Float32Array(rows * cols), da: new Float32Array(rank * cols) },
        ...{ db: new Float32Array(rows * rank), dmagnitude: new Float32Array(rows) },
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
