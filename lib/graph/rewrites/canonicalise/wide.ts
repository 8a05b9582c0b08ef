// wide.ts: operators of 16 bits that are computed in f32: their operands, and their result in its type.
import { isHalf } from '../../../core/dtype.js'
import { numel } from '../../../core/shape.js'
import { decode } from '../../../precision/casts.js'
import { int } from '../../attributes.js'
import { Constant } from '../../constant.js'
import { onnxNumbers } from '../../element-types.js'
import { makeNode, type Node } from '../../graph.js'
import type { NodeBuilder } from '../../node-builder.js'
import { reinterpret } from './block-codes.js'
import type { UpgradeContext } from './context.js'

/** The type of 16 bits that a value has; undefined for others. */
export function halfType(context: UpgradeContext, name: string): 'f16' | 'bf16' | undefined {
  const type = context.dtype(name)
  return type !== undefined && isHalf(type) ? type : undefined
}

/** A value as f32 where it has 16 bits. */
export const widened = (build: NodeBuilder, context: UpgradeContext, name: string): string =>
  halfType(context, name) ? build.add('Cast', [name], { to: int(onnxNumbers.f32) }) : name

/** Makes the output of a node of f32, cast to `type`. */
export function giveHalf(build: NodeBuilder, value: string, node: Node, type: 'f16' | 'bf16'): void {
  build.append(makeNode('Cast', [value], node.outputs, { attributes: { to: int(onnxNumbers[type]) } }))
}

/** Constant floats as f32; `what` they are, in messages. */
export function floatConstant(
  node: Node,
  context: UpgradeContext,
  name: string,
  shape: readonly number[],
  what: string,
): Constant {
  const constant = context.constantOf(name)
  const dtype = constant?.dtype ?? ''
  if (!constant || (!isHalf(dtype) && dtype !== 'f32'))
    throw context.unsupported(node, `its ${what} must be constant floats`)
  const count = numel(shape)
  if (constant.count !== count) {
    const wanted = `${count} ${what} are needed; there are ${constant.count}`
    throw context.unsupported(node, `${wanted}, so these are not those of a weight`)
  }
  if (dtype === 'f32') return reinterpret(constant, 'f32', shape)
  const read = (): Uint8Array => new Uint8Array(decode(constant.data as Uint16Array, dtype as 'f16').buffer)
  return Constant.lazy('f32', shape, { byteLength: 4 * count, read })
}
