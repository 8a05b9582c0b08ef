// elementwise.ts: functions of every element, with broadcasting.
import { sparkDomain } from '../../../graph/graph.js'
import type { BinaryFn, UnaryFn } from '../../tensor-kernel-args.js'
import type { Lowering } from '../lowering.js'
import type { Operand } from '../program.js'
import { broadcastStrides, collapse, volume } from '../views.js'
import type { LowerTable } from './table.js'

/** Adds y = fn(a, b), broadcasting operands of the given shapes to that of y. */
export function addBinary(
  at: Lowering,
  fn: BinaryFn,
  [a, aShape]: readonly [Operand, readonly number[]],
  [b, bShape]: readonly [Operand, readonly number[]],
  [y, yShape]: readonly [Operand, readonly number[]],
): void {
  const loop = collapse(yShape, [broadcastStrides(aShape, yShape), broadcastStrides(bShape, yShape)])
  const [aStrides, bStrides] = loop.strides as [number[], number[]]
  at.step('binary', { fn, dtype: 'f32', shape: loop.shape, aStrides, bStrides, a, b, y })
}

/** Adds y = fn(x). */
export function addUnary(at: Lowering, fn: UnaryFn, x: Operand, y: Operand): void {
  at.step('unary', { fn, dtype: 'f32', count: x.count, x, y })
}

const unary =
  (fn: UnaryFn) =>
  (at: Lowering): void =>
    addUnary(at, fn, at.read(0), at.write())

/** Two or more inputs, from the left to the right. */
const binary =
  (fn: BinaryFn) =>
  (at: Lowering): void => {
    const last = at.node.inputs.length - 1
    if (last === 0) at.view(0)
    let left = [at.read(0), at.shape(0)] as const
    for (let i = 1; i <= last; i++) {
      const { shape } = at.output()
      const y = i === last ? at.write() : at.scratch(volume(shape)).write()
      addBinary(at, fn, left, [at.read(i), at.shape(i)], [y, shape])
      left = [y.buffer.read(), shape]
    }
  }

/** Lowerings of elementwise operators. */
export const elementwise: LowerTable = {
  '': {
    Abs: unary('abs'),
    Neg: unary('neg'),
    Reciprocal: unary('reciprocal'),
    Sqrt: unary('sqrt'),
    Exp: unary('exp'),
    Log: unary('log'),
    Erf: unary('erf'),
    Tanh: unary('tanh'),
    Sigmoid: unary('sigmoid'),
    Relu: unary('relu'),
    Gelu: at => unary(at.text('approximate', 'none') === 'tanh' ? 'gelu_tanh' : 'gelu')(at),
    Add: binary('add'),
    Sub: binary('sub'),
    Mul: binary('mul'),
    Div: binary('div'),
    Pow: binary('pow'),
    Max: binary('max'),
    Min: binary('min'),
    Sum: binary('add'),
  },
  [sparkDomain]: {
    ReluGrad: binary('relu_grad'),
    GeluGrad: at => binary(at.text('approximate', 'none') === 'tanh' ? 'gelu_tanh_grad' : 'gelu_grad')(at),
  },
}
