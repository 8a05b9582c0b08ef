// tensor-operations.ts: arithmetic on tensors, each operation a model of one operator that is kept for the next call.
import { inspect } from 'node:util'
import { argumentError, expectInteger, expectKnownOptions } from '../core/checks.js'
import { type BackendName, getConfig } from '../core/config.js'
import type { DType, ElementArray, ElementType, TypedArrayOf } from '../core/dtype.js'
import { SparkError } from '../core/errors.js'
import { int, ints } from '../graph/attributes.js'
import { Constant } from '../graph/constant.js'
import { type Attributes, makeGraph, makeNode, tensorType } from '../graph/graph.js'
import { type NestedNumbers, Tensor } from '../memory/tensor.js'
import { Model } from './model.js'

/** The other operand: a tensor of the same type, or numbers that become one. */
export type TensorOperand = Tensor<ElementType> | ElementArray | NestedNumbers

/** Options of reductions. */
export interface ReductionOptions {
  /** Dimensions that are reduced; negative ones count from the last. Default: all. */
  readonly axes?: readonly number[]
  /** Whether they stay, with one element. Default: false. */
  readonly keepDims?: boolean
}

declare module '../memory/tensor.js' {
  // Operations broadcast as ONNX does, run on `backend`, and give a tensor with memory of its own. They throw ERR_DTYPE
  // for operands of different types, ERR_SHAPE for sizes that do not fit, ERR_UNSUPPORTED, and what openKernels throws.
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
    /** Dimension i of the result is dimension order[i]; by default the order is reversed. */
    transpose(order?: readonly number[]): Promise<Tensor<D>>
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
  { op, attributes = {}, list }: Operation,
  operands: readonly Tensor<ElementType>[],
  backend: BackendName,
): Promise<Model> {
  const names = operands.map((_, i) => `operand${i}`)
  const graph = makeGraph({
    inputs: operands.map(({ dtype, shape }, i) => ({
      name: names[i]!,
      type: tensorType(
        dtype,
        shape.map(() => null),
      ),
    })),
    outputs: [{ name: 'result' }],
    nodes: [makeNode(op, list ? [...names, 'list'] : names, ['result'], { attributes })],
    initializers: new Map(list ? [['list', Constant.i64(list)]] : []),
  })
  return Model.fromGraph(graph, { backend, precision: 'fp32' })
}

async function operate<D extends ElementType>(
  operation: Operation,
  operands: readonly [Tensor<D>, ...Tensor<ElementType>[]],
): Promise<Tensor<D>> {
  const model = await modelOf(operation, operands)
  const feeds = operands.map((operand, i) => [`operand${i}`, operand] as const)
  const { result } = await model.run(Object.fromEntries(feeds))
  const { data, shape, dtype } = result as Tensor<D>
  return Tensor.of(data as TypedArrayOf<D>, shape, dtype, operands[0].backend)
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

function expectAxis(name: string, axis: number, { shape }: Tensor<ElementType>): void {
  const rank = shape.length
  expectInteger(name, axis, -Math.max(rank, 1), Math.max(rank, 1) - 1)
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
    if (typeof keepDims !== 'boolean') throw argumentError('options.keepDims', 'true or false', keepDims)
    if (axes !== undefined && !Array.isArray(axes))
      throw argumentError('options.axes', 'an array of integers', axes)
    for (const [i, axis] of axes?.entries() ?? []) expectAxis(`options.axes[${i}]`, axis, this)
    // An empty list would mean all axes.
    if (axes?.length === 0) return this
    return operate({ op, attributes: { keepdims: int(Number(keepDims)) }, ...(axes && { list: axes }) }, [
      this,
    ])
  }

const operations = {
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
