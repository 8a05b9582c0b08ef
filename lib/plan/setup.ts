// setup.ts: constant folding on the backend: steps that run before the first run, once per model or once per set of sizes.
import type { Paced } from '../core/paced.js'
import { type Packing, packWeights } from './pack-weights.js'
import { type Buffer, isFixed, type Operand, operandsOf, type Step } from './program.js'

/** Steps by when they run. */
export interface Phases {
  /** Once: what depends on constants only. */
  readonly setup: Step[]
  /** Once for each set of sizes: what depends on constants and sizes only. */
  readonly sizing: Step[]
  /** Each time. */
  readonly steps: Step[]
}

/**
 * Moves steps that read only constants to the setup, and those that depend on sizes, too, to the sizing; their results get
 * memory of their own. Changes the buffers.
 * @param packing - how weights of products and convolutions that turn out to be constant are packed; false: not at all
 */
export function* splitSetup(steps: readonly Step[], packing: Packing | false): Paced<Phases> {
  const constant = yield* constantSteps(steps, isGiven, () => true)
  const once = yield* constantSteps([...constant], ({ storage }) => storage === 'constant', isFixed)
  const phases: Phases = { setup: [], sizing: [], steps: [] }
  for (const step of steps) {
    yield
    const storage = once.has(step) ? 'folded' : 'sized'
    const phase = once.has(step) ? phases.setup : constant.has(step) ? phases.sizing : phases.steps
    phase.push(step)
    if (phase === phases.steps) continue
    for (const { buffer, access } of operandsOf(step.args)) if (access === 'write') buffer.storage = storage
  }
  return packing ? { ...phases, steps: yield* packWeights(phases.steps, phases.setup, packing) } : phases
}

/** Whether the elements are there before a run. */
const isGiven = ({ storage }: Buffer): boolean => storage === 'constant' || storage === 'sized'

/** Steps that depend on constants only. What several steps make together is constant when all of them are. */
function* constantSteps(
  steps: readonly Step[],
  isGiven: (buffer: Buffer) => boolean,
  qualifies: (args: object) => boolean,
): Paced<Set<Step>> {
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
  const fixed = new Set(steps.filter(({ args }) => qualifies(args)))
  const isMade = (buffer: Buffer): boolean =>
    buffer.storage === 'arena' && (writers.get(buffer) ?? []).every(writer => fixed.has(writer))
  const isConstantStep = (step: Step): boolean =>
    operands.get(step)!.every(({ buffer, access }) => {
      if (access === 'read' && isGiven(buffer)) return true
      return access !== 'update' && isMade(buffer)
    })
  for (let size = -1; size !== fixed.size; ) {
    size = fixed.size
    for (const step of fixed) {
      yield
      if (!isConstantStep(step)) fixed.delete(step)
    }
  }
  return fixed
}
