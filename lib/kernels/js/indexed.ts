// indexed.ts: operations on elements at places that data says, in plain TypeScript.
import { SparkError } from '../../core/errors.js'
import type { Places, ScatterFn, TensorKernelArgs } from '../tensor-kernel-args.js'
import { floatReader, floatWriter, integerReader, integerWriter, isInteger } from './elements.js'
import { forEachIndex } from './strided.js'

/** Calls body(n, place) for the n-th index of the shape. */
function forEachPlace(places: Places, body: (n: number, place: number) => void): void {
  const { shape, strides, indexStrides, steps, limits, indices } = places
  let n = 0
  forEachIndex(shape, strides, indexStrides, (start, first) => {
    let place = start
    steps.forEach((step, d) => {
      const [index, limit] = [Number(indices[first + d]), limits[d]!]
      if (index < -limit || index >= limit) {
        throw new SparkError('ERR_ARGUMENT', `an index is ${index}, but there are ${limit} places`)
      }
      place += (index < 0 ? index + limit : index) * step
    })
    body(n++, place)
  })
}

/** y[i] = x[place(i)] */
export function gather(args: TensorKernelArgs['gather']): void {
  const { x, y } = args
  forEachPlace(args, (n, place) => {
    y[n] = x[place]!
  })
}

const floats: Readonly<Record<ScatterFn, (old: number, update: number) => number>> = {
  assign: (_, update) => update,
  add: (old, update) => old + update,
  mul: (old, update) => old * update,
  max: Math.max,
  min: Math.min,
}
const integers: Readonly<Record<ScatterFn, (old: bigint, update: bigint) => bigint>> = {
  assign: (_, update) => update,
  add: (old, update) => old + update,
  mul: (old, update) => old * update,
  max: (old, update) => (old > update ? old : update),
  min: (old, update) => (old < update ? old : update),
}

/** y[place(i)] = fn(y[place(i)], updates[i]) */
export function scatter(args: TensorKernelArgs['scatter']): void {
  const { fn, dtype, updates, y } = args
  const move = <T>(
    combine: (old: T, update: T) => T,
    old: (i: number) => T,
    update: (i: number) => T,
    write: (i: number, value: T) => void,
  ): void => forEachPlace(args, (n, place) => write(place, combine(old(place), update(n))))
  if (isInteger(dtype)) {
    move(integers[fn], integerReader(dtype, y), integerReader(dtype, updates), integerWriter(dtype, y))
  } else {
    move(floats[fn], floatReader(dtype, y), floatReader(dtype, updates), floatWriter(dtype, y))
  }
}
