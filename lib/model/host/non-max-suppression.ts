// non-max-suppression.ts: the best of boxes that overlap.

/** Settings of {@link nonMaxSuppression}. */
export interface Suppression {
  /** Boxes are [x center, y center, width, height] instead of [y1, x1, y2, x2]. */
  readonly centered: boolean
  /** Boxes to keep at most. */
  readonly limit: number
  /** Intersection over union above which the lower of two boxes goes. */
  readonly overlap: number
  /** Scores that are not above it go. */
  readonly threshold: number
}

type Box = readonly [top: number, left: number, bottom: number, right: number]

function boxAt(corners: Float32Array, i: number, centered: boolean): Box {
  const [a, b, c, d] = corners.subarray(4 * i, 4 * i + 4) as unknown as [number, number, number, number]
  if (centered) return [b - d / 2, a - c / 2, b + d / 2, a + c / 2]
  return [Math.min(a, c), Math.min(b, d), Math.max(a, c), Math.max(b, d)]
}

const area = ([top, left, bottom, right]: Box): number =>
  Math.max(0, bottom - top) * Math.max(0, right - left)

function intersectionOverUnion(a: Box, b: Box): number {
  const common = area([
    Math.max(a[0], b[0]),
    Math.max(a[1], b[1]),
    Math.min(a[2], b[2]),
    Math.min(a[3], b[3]),
  ])
  const union = area(a) + area(b) - common
  return union > 0 ? common / union : 0
}

/** Indices of the boxes that stay, the highest score first. */
export function nonMaxSuppression(
  corners: Float32Array,
  scores: Float32Array,
  { centered, limit, overlap, threshold }: Suppression,
): number[] {
  const candidates = [...scores.keys()].filter(i => scores[i]! > threshold)
  candidates.sort((a, b) => scores[b]! - scores[a]! || a - b)
  const kept: { readonly at: number; readonly box: Box }[] = []
  for (const at of candidates) {
    if (kept.length >= limit) break
    const box = boxAt(corners, at, centered)
    if (kept.every(other => intersectionOverUnion(box, other.box) <= overlap)) kept.push({ at, box })
  }
  return kept.map(({ at }) => at)
}
