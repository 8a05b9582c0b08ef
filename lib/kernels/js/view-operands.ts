// view-operands.ts: checks of the arguments of operations on views and of layers, the same that the addon makes.
import { argumentError, expectInteger, expectNumber, expectOneOf } from '../../core/checks.js'
import { arrayBytes } from '../../core/dtype.js'
import { SparkError } from '../../core/errors.js'
import { numel } from '../../core/shape.js'
import { panelSizes } from '../../weights/panels.js'
import { type LayerKernelArgs, poolFns } from '../layer-kernel-args.js'
import {
  binaryFns,
  type Places,
  reduceFns,
  scatterFns,
  type TensorKernelArgs,
  unaryFns,
} from '../tensor-kernel-args.js'
import { reach } from './strided.js'

type Pooling = 'pool' | 'poolBackward'
type Args = TensorKernelArgs & LayerKernelArgs
type Sizes = Readonly<Record<string, number>>

const fns: Readonly<Record<string, readonly string[]>> = {
  cast: [],
  unary: unaryFns,
  binary: binaryFns,
  select: [],
  reduce: reduceFns,
  cumulate: ['sum', 'prod'],
  topK: [],
  copyStrided: [],
  gather: [],
  scatter: scatterFns,
  pool: poolFns,
  poolBackward: poolFns,
  resample: [],
  dropoutMask: [],
  gridSample: [],
  recurrent: [],
}
const maxAxes = 8

/** Elements of the indices, and of the tensor that they point into. */
function placeSizes({ shape, strides, indexStrides, steps, limits }: Places): readonly [number, number] {
  if (steps.length !== limits.length) {
    throw new SparkError('ERR_SHAPE', `there are ${steps.length} steps and ${limits.length} limits`)
  }
  if (shape.includes(0)) return [0, 0]
  return [
    reach(0, shape, indexStrides) + steps.length - 1,
    reach(0, [...shape, ...limits], [...strides, ...steps]),
  ]
}

/** Elements that each array of an operation needs. */
export const viewSizes: { readonly [Op in Exclude<keyof Args, Pooling>]: (args: Args[Op]) => Sizes } = {
  cast: ({ count }) => ({ src: count, dst: count }),
  unary: ({ count }) => ({ x: count, y: count }),
  binary: ({ shape, aStrides, bStrides }) => ({
    a: reach(0, shape, aStrides),
    b: reach(0, shape, bStrides),
    y: numel(shape),
  }),
  select: ({ shape, conditionStrides, aStrides, bStrides }) => ({
    condition: reach(0, shape, conditionStrides),
    a: reach(0, shape, aStrides),
    b: reach(0, shape, bStrides),
    y: numel(shape),
  }),
  reduce: ({ shape, strides, reduced, reducedStrides }) => ({
    x: reach(0, [...shape, ...reduced], [...strides, ...reducedStrides]),
    y: numel(shape),
  }),
  cumulate: ({ outer, size, inner }) => ({ x: outer * size * inner, y: outer * size * inner }),
  topK: ({ outer, size, inner, k }) => ({
    x: outer * size * inner,
    'values?': outer * k * inner,
    indices: outer * k * inner,
  }),
  copyStrided: ({ shape, srcOffset, dstOffset, srcStrides, dstStrides }) => ({
    src: reach(srcOffset, shape, srcStrides),
    dst: reach(dstOffset, shape, dstStrides),
  }),
  gather: args => {
    const [indices, x] = placeSizes(args)
    return { indices, x, y: numel(args.shape) }
  },
  scatter: args => {
    const [indices, y] = placeSizes(args)
    return { indices, updates: numel(args.shape), y }
  },
  resample: ({ outer, size, inner, out, count }) => ({
    x: outer * size * inner,
    taps: out * count,
    weights: out * count,
    'offset?': out,
    y: outer * out * inner,
  }),
  dropoutMask: ({ count }) => ({ state: 3, mask: count }),
  gridSample: ({ batch, channels, points, image }) => ({
    x: batch * channels * numel(image),
    grid: batch * points * image.length,
    y: batch * channels * points,
  }),
  recurrent: recurrentSizes,
}

function recurrentSizes({
  cell,
  directions,
  steps,
  batch,
  hidden,
  functions,
  packed = false,
}: LayerKernelArgs['recurrent']): Sizes {
  if (directions !== 1 && directions !== 2) {
    throw new SparkError('ERR_SHAPE', `directions is ${directions}, neither 1 nor 2`)
  }
  const count = directions * { rnn: 1, gru: 2, lstm: 3 }[cell]
  if (functions.length !== count) {
    throw new SparkError('ERR_SHAPE', `there are ${functions.length} functions; this layer has ${count}`)
  }
  const width = { rnn: 1, gru: 3, lstm: 4 }[cell] * hidden
  const states = directions * batch * hidden
  return {
    gates: steps * directions * batch * width,
    recurrence:
      directions * (packed ? panelSizes({ format: 'f32', rows: width, cols: hidden }).data : hidden * width),
    'bias?': directions * width,
    'peepholes?': directions * 3 * hidden,
    'initialH?': states,
    'initialC?': states,
    'lengths?': batch,
    'y?': steps * states,
    lastH: states,
    [cell === 'lstm' ? 'lastC' : 'lastC?']: states,
    scratch: directions * batch * (width + hidden),
  }
}

/** Whether `op` is one of these. */
export const isOnViews = (op: string): op is keyof Args => Object.hasOwn(fns, op)

const sizeNames = ['count', 'outer', 'size', 'inner', 'k', 'out', 'stream', 'batch', 'channels', 'points']
const listNames = [
  'shape',
  'reduced',
  'steps',
  'limits',
  'image',
  'kernel',
  'dilations',
  'padsBegin',
  'padsEnd',
]

/** Shapes, strides, sizes and the function of an operation. */
export function expectViews(op: keyof Args, given: Readonly<Record<string, unknown>>): void {
  if (fns[op]!.length > 0) expectOneOf('fn', given.fn, fns[op]!)
  if (op === 'cast' && given.bits) expectSameBytes(given as unknown as Args['cast'])
  if (op === 'dropoutMask') expectNumber('ratio', given.ratio, 0, 1)
  if (op === 'pool' || op === 'poolBackward') return
  for (const name of sizeNames) {
    if (typeof given[name] === 'number') expectInteger(name, given[name], 0)
  }
  for (const name of listNames)
    if (name in given && op !== 'recurrent' && op !== 'resample') expectIntegers(name, given[name], 0)
  const least = op === 'copyStrided' ? -Number.MAX_SAFE_INTEGER : 0
  for (const [name, value] of Object.entries(given)) {
    if (!/strides$/i.test(name)) continue
    const loop = name === 'reducedStrides' ? 'reduced' : 'shape'
    const axes = given[loop] as readonly number[]
    expectIntegers(name, value, least)
    if ((value as readonly number[]).length !== axes.length) {
      throw new SparkError('ERR_SHAPE', `${name} has ${(value as []).length} entries for ${axes.length} axes`)
    }
  }
  for (const name of ['srcOffset', 'dstOffset']) if (name in given) expectInteger(name, given[name], 0)
}

function expectSameBytes({ srcDtype, dstDtype }: Args['cast']): void {
  if (arrayBytes(srcDtype, 1) === arrayBytes(dstDtype, 1)) return
  throw new SparkError('ERR_DTYPE', `${srcDtype} and ${dstDtype} differ in size`)
}

function expectIntegers(name: string, value: unknown, least: number): void {
  if (!Array.isArray(value)) throw argumentError(name, 'an array of integers', value)
  if (value.length > maxAxes) throw new SparkError('ERR_SHAPE', `${name} has more than ${maxAxes} entries`)
  value.forEach((entry, i) => {
    expectInteger(`${name}[${i}]`, entry, least)
  })
}
