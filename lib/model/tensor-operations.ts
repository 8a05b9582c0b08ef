// tensor-operations.ts: arithmetic on tensors, each operation a model of one operator that is kept for the next call.
import { inspect } from 'node:util'
import { argumentError, expectBoolean, expectInteger, expectKnownOptions } from '../core/checks.js'
import { type BackendName, getConfig } from '../core/config.js'
import type { DType, ElementArray, ElementType } from '../core/dtype.js'
import { SparkError } from '../core/errors.js'
import { int, ints } from '../graph/attributes.js'
import { Constant } from '../graph/constant.js'
import { type Attributes, makeGraph, makeNode, tensorType } from '../graph/graph.js'
import { type NestedNumbers, Tensor } from '../memory/tensor.js'
import { Model } from './model.js'
import { expectAxis, movements, type SliceOptions } from './tensor-movements.js'

/** The other operand: a tensor of the same type, or numbers that become one. */
export type TensorOperand = Tensor<ElementType> | ElementArray | NestedNumbers

/** Options of reductions. */
export interface ReductionOptions {
  /** Dimensions that are reduced; negative ones count from the last. Default: all. */
  readonly axes?: readonly number[]
  /** Whether they stay, with one element. Default: false. */
  readonly keepDims?: boolean
}

/** Options of {@link Tensor.argMax}. */
export interface SearchOptions {
  /** Whether the axis stays, with one element. Default: false. */
  readonly keepDims?: boolean
}

/** Options of {@link Tensor.topK}. */
export interface TopKOptions {
  /** false: the smallest elements, in ascending order. Default: true. */
  readonly largest?: boolean
}

/** What {@link Tensor.topK} gives. */
export interface TopK<D extends ElementType> {
  /** The elements. */
  readonly values: Tensor<D>
  /** Where they are along the axis. */
  readonly indices: Tensor<'i64'>
}

declare module '../memory/tensor.js' {
  // Operations broadcast as ONNX does, run on `backend`, and give a tensor with memory of its own. They throw ERR_DTYPE
  // for operands of different types, ERR_SHAPE for sizes that do not fit, ERR_UNSUPPORTED, and what openKernels throws.
  // Those that only move elements (slice, concat, stack) do so at once.
  interface Tensor<D extends ElementType = DType> {
    /** this + other; sizes of 1 and missing dimensions repeat. */
    add(other: TensorOperand): Promise<Tensor<D>>
    /** this − other */
    sub(other: TensorOperand): Promise<Tensor<D>>
    /** this · other, element by element. */
    mul(other: TensorOperand): Promise<Tensor<D>>
    /** this / other; integers lose the fraction. */
    div(other: TensorOperand): Promise<Tensor<D>>
    /** this to the power of other. */
    pow(other: TensorOperand): Promise<Tensor<D>>
    /** The product of matrices, or of batches of them: [.., M, K] by [.., K, N]. */
    matmul(other: TensorOperand): Promise<Tensor<D>>
    /** −this */
    neg(): Promise<Tensor<D>>
    /** |this| */
    abs(): Promise<Tensor<D>>
    /** e to the power of this. */
    exp(): Promise<Tensor<D>>
    /** The natural logarithm. */
    log(): Promise<Tensor<D>>
    /** The square root. */
    sqrt(): Promise<Tensor<D>>
    /** The hyperbolic tangent. */
    tanh(): Promise<Tensor<D>>
    /** max(this, 0) */
    relu(): Promise<Tensor<D>>
    /** 1 / (1 + e^−this) */
    sigmoid(): Promise<Tensor<D>>
    /** e^x / Σ e^x along an axis, by default the last. */
    softmax(axis?: number): Promise<Tensor<D>>
    /** The sum of elements. */
    sum(options?: ReductionOptions): Promise<Tensor<D>>
    /** The mean of elements. */
    mean(options?: ReductionOptions): Promise<Tensor<D>>
    /** The largest element. */
    max(options?: ReductionOptions): Promise<Tensor<D>>
    /** The smallest element. */
    min(options?: ReductionOptions): Promise<Tensor<D>>
    /** Where the largest element is along an axis, without which in all elements; the first of several. NaN counts as largest. */
    argMax(axis?: number, options?: SearchOptions): Promise<Tensor<'i64'>>
    /** Where the smallest element is, as {@link Tensor.argMax}. */
    argMin(axis?: number, options?: SearchOptions): Promise<Tensor<'i64'>>
    /** The `k` largest elements along an axis (default: the last), in descending order, and where they are. */
    topK(k: number, axis?: number, options?: TopKOptions): Promise<TopK<D>>
    /** Dimension i of the result is dimension order[i]; by default the order is reversed. */
    transpose(order?: readonly number[]): Promise<Tensor<D>>
    /**
     * The elements from `starts` up to, not including, `ends`, in memory of their own: numbers for the first dimension, or
     * a list for the first ones. Negative positions count from the end; without `ends` all that follow are taken.
     */
    slice(
      starts: number | readonly number[],
      ends?: number | readonly number[],
      options?: SliceOptions,
    ): Tensor<D>
    /** This tensor and others one behind the other along an axis, in memory of their own. */
    concat(others: Tensor<D> | readonly Tensor<D>[], axis?: number): Tensor<D>
    /** This tensor and others of its shape along a new axis, in memory of their own. */
    stack(others: Tensor<D> | readonly Tensor<D>[], axis?: number): Tensor<D>
  }
}

/** Models of one operator that are kept. */
const maxModels = 64
const models = new Map<string, Promise<Model>>()

/** An operator with constants behind its operands. */
interface Operation {
  readonly op: string
  readonly attributes?: Attributes
  /** The last input, a constant. */
  readonly list?: readonly number[]
  /** Number of outputs. Default: 1. */
  readonly outputs?: number
}

/** The model of an operation on tensors of these types, from the last calls or new. */
function modelOf(operation: Operation, operands: readonly Tensor<ElementType>[]): Promise<Model> {
  const backend = operands[0]!.backend ?? getConfig().backend
  const types = operands.map(({ dtype, shape }) => `${dtype} ${shape.length}`)
  const key = JSON.stringify([backend, operation, types])
  const model = models.get(key) ?? openModel(operation, operands, backend)
  models.delete(key)
  models.set(key, model)
  model.catch(() => models.delete(key))
  // A call may still wait for the oldest model, which therefore goes when nobody holds it any more.
  if (models.size > maxModels) models.delete(models.keys().next().value!)
  return model
}

function openModel(
  { op, attributes = {}, list, outputs = 1 }: Operation,
  operands: readonly Tensor<ElementType>[],
  backend: BackendName,
): Promise<Model> {
  const names = operands.map((_, i) => `operand${i}`)
  const results = Array.from({ length: outputs }, (_, i) => `result${i}`)
  const graph = makeGraph({
    inputs: operands.map(({ dtype, shape }, i) => ({
      name: names[i]!,
      type: tensorType(
        dtype,
        shape.map(() => null),
      ),
    })),
    outputs: results.map(name => ({ name })),
    nodes: [makeNode(op, list ? [...names, 'list'] : names, results, { attributes })],
    initializers: new Map(list ? [['list', Constant.i64(list)]] : []),
  })
  return Model.fromGraph(graph, { backend, precision: 'fp32' })
}

/** The outputs of an operation. */
async function operateAll(
  operation: Operation,
  operands: readonly [Tensor<ElementType>, ...Tensor<ElementType>[]],
): Promise<Tensor<ElementType>[]> {
  const model = await modelOf(operation, operands)
  const feeds = operands.map((operand, i) => [`operand${i}`, operand] as const)
  const results = await model.run<Tensor<ElementType>>(Object.fromEntries(feeds))
  return Object.values(results).map(({ data, shape, dtype }) =>
    Tensor.of(data, shape, dtype, operands[0].backend),
  )
}

async function operate<D extends ElementType>(
  operation: Operation,
  operands: readonly [Tensor<D>, ...Tensor<ElementType>[]],
): Promise<Tensor<D>> {
  const [result] = await operateAll(operation, operands as unknown as [Tensor<ElementType>])
  return result as unknown as Tensor<D>
}

/** The operand as a tensor of the type of `tensor`. */
function operandFor<D extends ElementType>(tensor: Tensor<D>, other: TensorOperand): Tensor<ElementType> {
  if (!(other instanceof Tensor)) return Tensor.from(other, { dtype: tensor.dtype })
  if ((other.dtype as ElementType) === tensor.dtype) return other
  const remedy = `convert one: tensor.to('${tensor.dtype}')`
  throw new SparkError(
    'ERR_DTYPE',
    `other is of ${other.dtype}, but the tensor is of ${tensor.dtype}; ${remedy}`,
  )
}

const binary = (op: string) =>
  async function <D extends ElementType>(this: Tensor<D>, other: TensorOperand): Promise<Tensor<D>> {
    return operate({ op }, [this, operandFor(this, other)])
  }

const unary = (op: string) =>
  async function <D extends ElementType>(this: Tensor<D>): Promise<Tensor<D>> {
    return operate({ op }, [this])
  }

const reduction = (op: string) =>
  async function <D extends ElementType>(
    this: Tensor<D>,
    options: ReductionOptions = {},
  ): Promise<Tensor<D>> {
    expectKnownOptions('options', options, ['axes', 'keepDims'])
    const { axes, keepDims = false } = options
    expectBoolean('options.keepDims', keepDims)
    if (axes !== undefined && !Array.isArray(axes))
      throw argumentError('options.axes', 'an array of integers', axes)
    for (const [i, axis] of axes?.entries() ?? []) expectAxis(`options.axes[${i}]`, axis, this)
    // An empty list would mean all axes.
    if (axes?.length === 0) return this
    return operate({ op, attributes: { keepdims: int(Number(keepDims)) }, ...(axes && { list: axes }) }, [
      this,
    ])
  }

const search = (op: string) =>
  async function (
    this: Tensor<ElementType>,
    axis?: number,
    options: SearchOptions = {},
  ): Promise<Tensor<'i64'>> {
    expectKnownOptions('options', options, ['keepDims'])
    const { keepDims = false } = options
    expectBoolean('options.keepDims', keepDims)
    if (axis !== undefined) expectAxis('axis', axis, this)
    const flat = axis === undefined || this.shape.length === 0
    const x = flat ? this.reshape([this.size]) : this
    const attributes = { axis: int(flat ? 0 : axis), keepdims: int(Number(keepDims)) }
    const [found] = (await operateAll({ op, attributes }, [x])) as [Tensor<'i64'>]
    return flat && keepDims ? found.reshape(this.shape.map(() => 1)) : found
  }

const operations = {
  ...movements,
  argMax: search('ArgMax'),
  argMin: search('ArgMin'),
  async topK<D extends ElementType>(
    this: Tensor<D>,
    k: number,
    axis = -1,
    options: TopKOptions = {},
  ): Promise<TopK<D>> {
    expectKnownOptions('options', options, ['largest'])
    const { largest = true } = options
    expectBoolean('options.largest', largest)
    expectAxis('axis', axis, this)
    const x = this.shape.length === 0 ? this.reshape([1]) : this
    expectInteger('k', k, 0, x.shape.at(axis))
    const attributes = { axis: int(axis), largest: int(Number(largest)) }
    const operation = { op: 'TopK', attributes, list: [k], outputs: 2 }
    const [values, indices] = await operateAll(operation, [x as Tensor<ElementType>])
    return { values: values as unknown as Tensor<D>, indices: indices as Tensor<'i64'> }
  },
  add: binary('Add'),
  sub: binary('Sub'),
  mul: binary('Mul'),
  div: binary('Div'),
  pow: binary('Pow'),
  matmul: binary('MatMul'),
  neg: unary('Neg'),
  abs: unary('Abs'),
  exp: unary('Exp'),
  log: unary('Log'),
  sqrt: unary('Sqrt'),
  tanh: unary('Tanh'),
  relu: unary('Relu'),
  sigmoid: unary('Sigmoid'),
  sum: reduction('ReduceSum'),
  mean: reduction('ReduceMean'),
  max: reduction('ReduceMax'),
  min: reduction('ReduceMin'),
  async softmax<D extends ElementType>(this: Tensor<D>, axis = -1): Promise<Tensor<D>> {
    expectAxis('axis', axis, this)
    return operate({ op: 'Softmax', attributes: { axis: int(axis) } }, [this])
  },
  async transpose<D extends ElementType>(this: Tensor<D>, order?: readonly number[]): Promise<Tensor<D>> {
    if (order !== undefined && !Array.isArray(order))
      throw argumentError('order', 'an array of integers', order)
    const perm = order ?? this.shape.map((_, i) => i).reverse()
    if (perm.toSorted((a, b) => a - b).some((axis, i) => axis !== i) || perm.length !== this.shape.length) {
      const wanted = `each dimension of [${this.shape.join(', ')}] once`
      throw new SparkError('ERR_SHAPE', `order must name ${wanted}, got ${inspect(order)}`)
    }
    return operate({ op: 'Transpose', attributes: { perm: ints(perm) } }, [this])
  },
}

/**
 * Gives {@link Tensor} its operations. They run models, which know tensors: the class itself, in a layer below, cannot
 * import them. `index.ts` calls this once, before anything else can make a tensor.
 */
export function installTensorOperations(): void {
  Object.assign(Tensor.prototype, operations)
}
