// scale-order.ts: the order of block scales in cuBLASLt's block-scaled GEMM (docs/numerics.md).
const tileRows = 128
const tileCols = 4
const groupRows = 32 // rows of a tile that lie 16 bytes apart

/** Bytes of whole tiles. */
export function swizzledLength(rows: number, cols: number): number {
  return Math.ceil(rows / tileRows) * Math.ceil(cols / tileCols) * tileRows * tileCols
}

/** Calls `visit` with the place of every scale in both orders. */
export function forEachScale(
  rows: number,
  cols: number,
  visit: (linear: number, tiled: number) => void,
): void {
  const tilesAcross = Math.ceil(cols / tileCols)
  for (let row = 0; row < rows; row++) {
    const firstTile = Math.trunc(row / tileRows) * tilesAcross
    const inTile = (row % groupRows) * 16 + Math.trunc((row % tileRows) / groupRows) * tileCols
    for (let col = 0; col < cols; col++) {
      const tile = firstTile + Math.trunc(col / tileCols)
      visit(row * cols + col, tile * tileRows * tileCols + inTile + (col % tileCols))
    }
  }
}
