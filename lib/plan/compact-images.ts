// compact-images.ts: a layout for each chain of convolutions. Where convolutions, poolings, concatenations of channels, elementwise
// operations between them, resampling and means alone write and read an image, it is compact, with its channels last, if it is small:
// positions of a plane would fill vectors badly.

import type { Paced } from '../core/paced.js'
import { sameSize } from '../core/size.js'
import { isSmallImage, mostCompactPositions } from '../kernels/compact.js'
import { type ImageStep, type Images, imageStepOf } from './image-steps.js'
import { type Buffer, type Operand, operandsOf, type Step } from './program.js'

/** Lets images be compact where all that write and read them take it. */
export function* compactImages(steps: readonly Step[]): Paced<Step[]> {
  const known = new Map<Buffer, Images>()
  const parts: (ImageStep | undefined)[] = []
  for (const step of steps) {
    yield
    const part = imageStepOf(step, known)
    for (const [{ access, buffer }, images] of part?.images ?? [])
      if (access === 'write') known.set(buffer, images)
    parts.push(part)
  }
  const compact = yield* compactBuffers(steps, parts, known)
  return steps.map((step, i) => parts[i]?.withCompact(buffer => compact.has(buffer)) ?? step)
}

const mayBeSmall = ({ channels, positions }: Images): boolean =>
  typeof positions !== 'number' ||
  (typeof channels === 'number' ? isSmallImage(positions, channels) : positions <= mostCompactPositions)

const areSame = (a: Images, b: Images | undefined): boolean =>
  a === b ||
  (b !== undefined &&
    sameSize(a.batch, b.batch) &&
    sameSize(a.channels, b.channels) &&
    sameSize(a.positions, b.positions))

const isWhole = ({ buffer, offset, count }: Operand): boolean => offset === 0 && sameSize(count, buffer.count)

/** Buffers that hold the same images, and nothing else, for all steps. */
function* compactBuffers(
  steps: readonly Step[],
  parts: readonly (ImageStep | undefined)[],
  known: ReadonlyMap<Buffer, Images>,
): Paced<ReadonlySet<Buffer>> {
  const [written, excluded] = [new Set<Buffer>(), new Set<Buffer>()]
  for (const [i, step] of steps.entries()) {
    yield
    for (const operand of operandsOf(step.args)) {
      const { buffer, access } = operand
      const images = parts[i]?.images.get(operand)
      const isOne = images && areSame(images, known.get(buffer)) && mayBeSmall(images)
      if (!isOne || buffer.storage !== 'arena' || !isWhole(operand)) excluded.add(buffer)
      else if (access === 'write') written.add(buffer)
    }
  }
  const compact = new Set([...written].filter(buffer => !excluded.has(buffer)))
  for (let size = -1; size !== compact.size; ) {
    size = compact.size
    for (const part of parts) {
      const buffers = part?.alike.map(({ buffer }) => buffer) ?? []
      if (buffers.every(buffer => compact.has(buffer))) continue
      for (const buffer of buffers) compact.delete(buffer)
    }
  }
  return compact
}
