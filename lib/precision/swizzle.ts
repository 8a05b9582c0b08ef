// swizzle.ts: conversion of block scales to and from the order of cuBLASLt's block-scaled GEMM.
import { argumentError, expectInteger } from '../core/checks.js'
import { runPrecisionKernel } from './kernels.js'
import { swizzledLength } from './scale-order.js'

/**
 * Reorders block scales, one byte each, for the block-scaled matrix products of cuBLASLt and CUTLASS (docs/numerics.md):
 * tiles of 128 x 4 in row-major order, with rows r, r + 32, r + 64 and r + 96 of a tile next to each other.
 * @param scales - [rows, cols], row-major: `blockScale` of an NVFP4 matrix, cols being its columns / 16
 * @returns [⌈rows / 128⌉, ⌈cols / 4⌉, 512], the bytes beyond the matrix being 0
 * @throws SparkError ERR_SHAPE when `scales` does not have rows · cols bytes
 */
export function swizzleScales(scales: Uint8Array, rows: number, cols: number): Uint8Array {
  expectScales('scales', scales, rows, cols, rows * cols)
  const swizzled = new Uint8Array(swizzledLength(rows, cols))
  runPrecisionKernel('swizzleScales', { rows, cols, inverse: false, src: scales, dst: swizzled })
  return swizzled
}

/**
 * The inverse of {@link swizzleScales}.
 * @param swizzled - [⌈rows / 128⌉, ⌈cols / 4⌉, 512]
 * @returns [rows, cols], row-major
 * @throws SparkError ERR_SHAPE when `swizzled` does not have ⌈rows / 128⌉ · ⌈cols / 4⌉ · 512 bytes
 */
export function unswizzleScales(swizzled: Uint8Array, rows: number, cols: number): Uint8Array {
  expectScales('swizzled', swizzled, rows, cols, swizzledLength(rows, cols))
  const scales = new Uint8Array(rows * cols)
  runPrecisionKernel('swizzleScales', { rows, cols, inverse: true, src: swizzled, dst: scales })
  return scales
}

function expectScales(name: string, array: unknown, rows: number, cols: number, length: number): void {
  expectInteger('rows', rows, 0)
  expectInteger('cols', cols, 0)
  if (!(array instanceof Uint8Array) || array.length !== length) {
    throw argumentError(name, `a Uint8Array of ${length} elements`, array, 'ERR_SHAPE')
  }
}
