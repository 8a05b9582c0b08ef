// recurrent.ts: attributes of recurrent layers.
import { SparkError } from '../core/errors.js'
import { describeNode, floatsOf, stringOf, stringsOf } from './attributes.js'
import type { Node } from './graph.js'

/** Gates of each layer. */
export const recurrentGates: Readonly<Record<string, number>> = { LSTM: 4, GRU: 3, RNN: 1 }

/** Whether a node is a recurrent layer. */
export const isRecurrent = ({ domain, op }: Node): boolean =>
  domain === '' && Object.hasOwn(recurrentGates, op)

/** A function of a layer as an operator of ONNX with its attributes. */
export interface RecurrentFunction {
  /** The operator. */
  readonly op: string
  /** α, where the operator has one. */
  readonly alpha?: number
  /** β, where the operator has one. */
  readonly beta?: number
}

const usual: Readonly<Record<string, readonly string[]>> = {
  RNN: ['Tanh'],
  GRU: ['Sigmoid', 'Tanh'],
  LSTM: ['Sigmoid', 'Tanh', 'Tanh'],
}

/** Operators that may be functions, with α and β when the node does not say. */
const known: readonly RecurrentFunction[] = [
  ...['Relu', 'Tanh', 'Sigmoid', 'Softsign', 'Softplus'].map(op => ({ op })),
  { op: 'LeakyRelu', alpha: 0.01 },
  { op: 'ThresholdedRelu', alpha: 1 },
  { op: 'Elu', alpha: 1 },
  { op: 'HardSigmoid', alpha: 0.2, beta: 0.5 },
]

/** Whether each direction of a layer goes from the last step to the first. */
export function directionsOf(node: Node): readonly boolean[] {
  const direction = stringOf(node, 'direction')
  return direction === 'bidirectional' ? [false, true] : [direction === 'reverse']
}

/**
 * The functions f, g, h of each direction of a layer, as many of them as it has. Those that take parameters consume the
 * node's in order.
 * @throws SparkError ERR_UNSUPPORTED for a function that is not known, ERR_FORMAT where their number is wrong
 */
export function recurrentFunctions(node: Node): readonly (readonly RecurrentFunction[])[] {
  const directions = directionsOf(node)
  const count = usual[node.op]!.length
  const names = stringsOf(node, 'activations') ?? directions.flatMap(() => usual[node.op]!)
  if (names.length !== directions.length * count) {
    const wanted = `${directions.length * count} activations`
    throw new SparkError('ERR_FORMAT', `${describeNode(node)} has ${names.length} of its ${wanted}`)
  }
  const [alphas, betas] = ['activation_alpha', 'activation_beta'].map(name => [
    ...(floatsOf(node, name) ?? []),
  ])
  const functions = names.map((name): RecurrentFunction => {
    const found = known.find(({ op }) => op.toLowerCase() === name.toLowerCase())
    if (!found) {
      throw new SparkError(
        'ERR_UNSUPPORTED',
        `${describeNode(node)}: the activation '${name}' is not supported`,
      )
    }
    const { op, alpha, beta } = found
    return {
      op,
      ...(alpha !== undefined && { alpha: alphas!.shift() ?? alpha }),
      ...(beta !== undefined && { beta: betas!.shift() ?? beta }),
    }
  })
  return directions.map((_, d) => functions.slice(d * count, (d + 1) * count))
}
