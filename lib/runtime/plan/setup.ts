// setup.ts: what is computed once, before the first run: all that depends on constants only.
import { packedSizes } from '../packed-weight.js'
import { Buffer, operandsOf, type Step } from './program.js'

type LinearWeight = Extract<Step, { op: 'linear' }>['args']['weight']

/**
 * Moves steps that read only constants to the setup; their results get memory of their own. Changes the buffers.
 * @param packs - whether to pack weights of products that turn out to be constant
 */
export function splitSetup(steps: readonly Step[], packs: boolean): { setup: Step[]; steps: Step[] } {
  const fixed = fixedSteps(steps)
  const [setup, rest]: [Step[], Step[]] = [[], []]
  for (const step of steps) {
    if (!fixed.has(step)) {
      rest.push(step)
      continue
    }
    for (const { buffer, access } of operandsOf(step.args)) if (access === 'write') buffer.storage = 'packed'
    setup.push(step)
  }
  return { setup, steps: packs ? packWeights(rest, setup) : rest }
}

/** Steps that depend on constants only. What several steps make together is fixed when all of them are. */
function fixedSteps(steps: readonly Step[]): Set<Step> {
  const writers = new Map<Buffer, Step[]>()
  const operands = new Map(steps.map(step => [step, [...operandsOf(step.args)]]))
  for (const [step, list] of operands) {
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
    for (const step of fixed) if (!isFixed(step)) fixed.delete(step)
  }
  return fixed
}

const isConstant = ({ storage }: Buffer): boolean => storage === 'constant' || storage === 'packed'

/**
 * Lets products read constant f32 weights in the layout that kernels stream; steps that pack them go to `setup`. A weight
 * that other kernels read as well stays as it is: two copies would cost more memory than they save time.
 */
function packWeights(steps: readonly Step[], setup: Step[]): Step[] {
  const others = steps.filter(({ op }) => op !== 'linear').flatMap(({ args }) => [...operandsOf(args)])
  const shared = new Set(others.map(({ buffer }) => buffer))
  const known = new Map<Buffer, Map<number, LinearWeight>>()
  const packed = (weight: LinearWeight): LinearWeight => {
    const { buffer, offset } = weight.data
    const places = known.get(buffer) ?? new Map<number, LinearWeight>()
    known.set(buffer, places)
    const found = places.get(offset)
    if (found?.rows === weight.rows && found.cols === weight.cols) return found
    const data = new Buffer('f32', packedSizes(weight).data, 'packed')
    setup.push({ op: 'packWeight', args: { weight, data: data.write() } })
    const result = { ...weight, data: data.read(), packed: true }
    places.set(offset, result)
    return result
  }
  return steps.map(step => {
    const weight = step.op === 'linear' ? step.args.weight : undefined
    if (step.op !== 'linear' || !weight || weight.dtype !== 'f32' || weight.packed) return step
    const { buffer } = weight.data
    if (!isConstant(buffer) || shared.has(buffer)) return step
    return { ...step, args: { ...step.args, weight: packed(weight) } }
  })
}
