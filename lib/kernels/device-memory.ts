// device-memory.ts: constants in the memory of a device: read from files to there, or moved there.
import type { ElementArray, ElementType } from '../core/dtype.js'
import { formatInfo, weightSizes } from '../weights/formats.js'
import { bytesOfRows, type LazyWeight } from '../weights/lazy-weight.js'
import { arraysOf, type Weight } from '../weights/weight.js'
import type { DeviceArray, DeviceMemory } from './kernels.js'

/** Bytes of a file that are read while those before them are on their way. */
const pieceBytes = 1 << 21

/** Reads `bytes` from `at` on. */
export type ReadPiece = (at: number, bytes: Uint8Array) => Promise<void>

/**
 * Fills an array piece by piece: one piece is read while the one before it is on its way.
 * @param unit - bytes that are not divided
 */
async function fillInPieces(
  memory: DeviceMemory,
  target: DeviceArray,
  unit: number,
  read: ReadPiece,
): Promise<void> {
  const { byteLength } = target.array
  const step = Math.min(byteLength, unit * Math.max(1, Math.floor(pieceBytes / unit)))
  const pieces = Array.from({ length: byteLength > step ? 2 : 1 }, () => new Uint8Array(step))
  let filling = Promise.resolve()
  try {
    for (let at = 0, i = 0; at < byteLength; at += step, i++) {
      const piece = pieces[i % 2]!.subarray(0, byteLength - at)
      const reading = read(at, piece)
      await Promise.allSettled([reading, filling])
      await filling
      await reading
      filling = target.fill(at, piece)
    }
    await filling
  } finally {
    for (const { buffer } of pieces) memory.release(buffer)
  }
}

/** Fills new memory of a device; gives it back where that fails. */
async function filled(target: DeviceArray, fill: () => Promise<void>): Promise<DeviceArray> {
  try {
    await fill()
    return target
  } catch (error) {
    target.dispose()
    throw error
  }
}

/**
 * Reads an array to a device. It is never in memory twice.
 * @throws SparkError as {@link DeviceMemory.allocate} and {@link DeviceArray.fill}, and what `read` does
 */
export async function readToDevice(
  memory: DeviceMemory,
  { dtype, count, unit = 1 }: { readonly dtype: ElementType; readonly count: number; readonly unit?: number },
  read: ReadPiece,
): Promise<DeviceArray> {
  const target = await memory.allocate(dtype, count)
  return filled(target, () => fillInPieces(memory, target, unit, read))
}

/**
 * Copies an array to a device.
 * @throws SparkError as {@link DeviceMemory.allocate} and {@link DeviceArray.fill}
 */
export async function copyToDevice(
  memory: DeviceMemory,
  dtype: ElementType,
  array: ElementArray,
): Promise<DeviceArray> {
  const target = await memory.allocate(dtype, array.length)
  return filled(target, () =>
    target.fill(0, new Uint8Array(array.buffer, array.byteOffset, array.byteLength)),
  )
}

/**
 * Reads a weight to a device, piece by piece where its rows can be read on their own: it is never in memory twice.
 * @returns the weight, which owns its memory
 * @throws SparkError as {@link DeviceMemory.allocate} and {@link DeviceArray.fill}, and what reading the file does
 */
export async function loadToDevice(memory: DeviceMemory, weight: LazyWeight): Promise<Weight> {
  const { format, rows, cols } = weight
  const { dtype } = formatInfo(format)
  if (weight.loadRows) {
    const [count, unit] = [weightSizes(format, rows, cols).data, bytesOfRows(weight, 1)]
    const read: ReadPiece = (at, bytes) => weight.loadRows!(at / unit, bytes)
    const data = await readToDevice(memory, { dtype, count, unit }, read)
    return { format, rows, cols, data: data.array, owner: ownerOf([data]) } as Weight
  }
  const read = await weight.load(memory.release)
  const copies: [name: string, copy: DeviceArray][] = []
  try {
    for (const [name, array] of arraysOf(read)) {
      const type = name === 'data' ? dtype : name === 'blockScale' ? 'u8' : 'f32'
      copies.push([name, await copyToDevice(memory, type, array)])
    }
    // Arrays may share a buffer.
    for (const [, { buffer }] of arraysOf(read)) memory.release(buffer as ArrayBuffer)
  } catch (error) {
    for (const [, copy] of copies) copy.dispose()
    throw error
  }
  const arrays = Object.fromEntries(copies.map(([name, { array }]) => [name, array]))
  return { ...read, ...arrays, owner: ownerOf(copies.map(([, copy]) => copy)) } as Weight
}

const ownerOf = (arrays: readonly DeviceArray[]): Disposable => ({
  [Symbol.dispose]() {
    for (const array of arrays) array.dispose()
  },
})
