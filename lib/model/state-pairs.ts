// state-pairs.ts: which outputs of a model replace which inputs after a run.
import { argumentError, expectInteger, expectKnownOptions } from '../core/checks.js'
import { didYouMean } from '../core/did-you-mean.js'
import { SparkError } from '../core/errors.js'
import { pastStates } from '../graph/edit.js'
import type { StatePair } from './model-state.js'
import type { ModelValue } from './model-value.js'

/** The output that replaces an input, and the axis along which both grow where shapes do not show it. */
export interface StateOutput {
  /** Name of the output. */
  readonly output: string
  /** The axis; null: their size stays. */
  readonly axis?: number | null
}

/** Outputs by the names of the inputs that they replace after a run. */
export type StatePairs = Readonly<Record<string, string | StateOutput>>

/** The ends of a model. */
interface Ends {
  readonly inputs: readonly ModelValue[]
  readonly outputs: readonly ModelValue[]
}

/**
 * The pairs that a caller asks for, or those whose names say `past` and `present`.
 * @throws SparkError ERR_ARGUMENT for names that the model does not have, for values that are no tensors of one type, and where
 * nothing says along which axis they grow
 */
export function statePairs(ends: Ends, given: StatePairs | undefined): StatePair[] {
  const pairs = given ?? pairsByName(ends)
  if (typeof pairs !== 'object' || pairs === null || Object.keys(pairs).length === 0)
    throw argumentError('pairs', "an object of inputs and outputs, such as { past: 'present' }", pairs)
  const taken = new Set<string>()
  return Object.entries(pairs).map(([input, value]) => {
    const label = `pairs['${input}']`
    const { output, axis } = typeof value === 'string' ? { output: value } : expectStateOutput(label, value)
    if (taken.has(output)) throw argumentError(label, 'another output than that of other pairs', output)
    taken.add(output)
    const [from, to] = [named(ends.inputs, 'input', input), named(ends.outputs, 'output', output)]
    return { input, output, dtype: dtypeOf(label, from, to), axis: axisOf(label, from, to, axis) }
  })
}

function expectStateOutput(label: string, value: StateOutput): StateOutput {
  if (typeof value !== 'object' || value === null || typeof value.output !== 'string')
    throw argumentError(label, "the name of an output, or { output: 'name', axis: 2 }", value)
  expectKnownOptions(label, value, ['output', 'axis'])
  return value
}

function pairsByName({ inputs, outputs }: Ends): StatePairs {
  const pairs = pastStates(inputs, outputs)
  if (pairs.size > 0) return Object.fromEntries(pairs)
  const names = `inputs ${list(inputs)}; outputs ${list(outputs)}`
  throw new SparkError(
    'ERR_ARGUMENT',
    `no names of past and present fit together: name the pairs, as in model.bindState({ past: 'present' }); ${names}`,
  )
}

const list = (values: readonly ModelValue[]): string => values.map(({ name }) => `'${name}'`).join(', ')

function named(values: readonly ModelValue[], kind: string, name: string): ModelValue {
  const value = values.find(value => value.name === name)
  if (value) return value
  const known = values.map(({ name }) => name)
  throw new SparkError(
    'ERR_ARGUMENT',
    `pairs: the model has no ${kind} '${name}'${didYouMean(name, known)}; it has: ${known.join(', ')}`,
  )
}

function dtypeOf(label: string, from: ModelValue, to: ModelValue): StatePair['dtype'] {
  const { kind, dtype } = from
  const isKept = kind === 'tensor' && to.kind === 'tensor' && dtype !== null && dtype !== 'string'
  if (isKept && (to.dtype === null || to.dtype === dtype)) return dtype
  const types = [from, to].map(
    ({ name, kind, dtype }) => `'${name}' is a ${kind} of ${dtype ?? 'unknown type'}`,
  )
  throw new SparkError(
    'ERR_ARGUMENT',
    `${label}: both must be tensors of numbers of one type; ${types.join(', ')}`,
  )
}

/** The axis along which an output is longer than its input: the only one whose sizes are not known to be equal. */
function axisOf(
  label: string,
  from: ModelValue,
  to: ModelValue,
  given: number | null | undefined,
): number | undefined {
  if (given === null) return undefined
  if (given !== undefined) {
    expectInteger(`${label}.axis`, given, 0, (from.shape?.length ?? 8) - 1)
    return given
  }
  const [a, b] = [from.shape, to.shape]
  const open = a?.flatMap((size, axis) =>
    typeof size === 'number' || (size !== null && size === b?.[axis]) ? [] : [axis],
  )
  if (!a || !b || a.length !== b.length || !open || open.length > 1) {
    const shapes = [a, b].map(shape => (shape ? `[${shape.map(size => size ?? '?').join(', ')}]` : 'unknown'))
    throw new SparkError(
      'ERR_ARGUMENT',
      `${label}: the shapes ${shapes.join(' and ')} do not say along which axis '${from.name}' grows: give it, as in { output: '${to.name}', axis: 2 }, or axis: null where its size stays`,
    )
  }
  return open[0]
}
