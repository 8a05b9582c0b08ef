// setup.ts: constant folding on the backend: steps that run once, before the first run.
import type { Paced } from '../core/paced.js'
import type { Bf16Support } from '../kernels/kernels.js'
import { isConstant, packWeights } from './pack-weights.js'
import { type Buffer, type Operand, operandsOf, type Step } from './program.js'

/**
 * Moves steps that read only constants to the setup; their results get memory of their own. Changes the buffers.
 * @param packs - what multiplies bf16 where weights of products and convolutions that turn out to be constant are to be
 * packed, or false
 */
export function* splitSetup(
  steps: readonly Step[],
  packs: Bf16Support | false,
): Paced<{ setup: Step[]; steps: Step[] }> {
  const fixed = yield* fixedSteps(steps)
  const [setup, rest]: [Step[], Step[]] = [[], []]
  for (const step of steps) {
    yield
    if (!fixed.has(step)) {
      rest.push(step)
      continue
    }
    for (const { buffer, access } of operandsOf(step.args)) if (access === 'write') buffer.storage = 'folded'
    setup.push(step)
  }
  return { setup, steps: packs ? yield* packWeights(rest, setup, packs) : rest }
}

/** Steps that depend on constants only. What several steps make together is fixed when all of them are. */
function* fixedSteps(steps: readonly Step[]): Paced<Set<Step>> {
  const writers = new Map<Buffer, Step[]>()
  const operands = new Map<Step, readonly Operand[]>()
  for (const step of steps) {
    yield
    const list = [...operandsOf(step.args)]
    operands.set(step, list)
    for (const { buffer, access } of list) {
      if (access === 'read') continue
      const others = writers.get(buffer)
      if (others) others.push(step)
      else writers.set(buffer, [step])
    }
  }
  const fixed = new Set(steps)
  const isMade = (buffer: Buffer): boolean =>
    buffer.storage === 'arena' && (writers.get(buffer) ?? []).every(writer => fixed.has(writer))
  const isFixed = (step: Step): boolean =>
    operands.get(step)!.every(({ buffer, access }) => {
      if (access === 'read' && isConstant(buffer)) return true
      return access !== 'update' && isMade(buffer)
    })
  for (let size = -1; size !== fixed.size; ) {
    size = fixed.size
    for (const step of fixed) {
      yield
      if (!isFixed(step)) fixed.delete(step)
    }
  }
  return fixed
}
