// layer.ts: recurrent layers, images at points and frames of cameras among the cases of `dgx-spark verify`.
import type { FunctionArgs } from '../../kernels/layer-args.js'
import { f32, sumTolerance, type VerifyCase, type VerifySizes, values, verifyCase } from './values.js'

/** Recurrent layers and images at points. */
export function layerCases(sizes: VerifySizes): VerifyCase[] {
  return [...gridCases(sizes), ...warpCases(sizes), ...recurrentCases(sizes)]
}

/** Points inside and outside of an image. The TypeScript kernel takes coordinates in double. */
function gridCases({ tokens, rows, cols }: VerifySizes): VerifyCase[] {
  const image = [Math.min(rows, 33), Math.min(cols, 48)] as const
  const channels = Math.min(tokens, 5)
  const points = rows + cols
  const sizes = { batch: 2, channels, image, points }
  const x = values(2 * channels * image[0] * image[1], 44)
  const grid = values(2 * points * 2, 45).map(value => 1.5 * value)
  const kinds = [
    ['nearest', 'zeros', false],
    ['linear', 'border', true],
    ['cubic', 'reflection', false],
  ] as const
  return kinds.map(([interpolation, outOfImage, alignCorners]) =>
    verifyCase('gridSample', `${interpolation}, ${outOfImage}`, ['y'], 1e-5, () => ({
      interpolation,
      outOfImage,
      alignCorners,
      ...sizes,
      x,
      grid,
      y: f32(2 * channels * points),
    })),
  )
}

/** Frames with gaps behind their rows, planar and with U and V side by side, through a tilted projection. */
function warpCases({ rows, cols }: VerifySizes): VerifyCase[] {
  const [height, width] = [2 * Math.min(rows, 24), 2 * Math.min(cols, 36)]
  const pitch = width + 6
  const luma = { height, width, offset: 5, pitch, step: 1 }
  const chroma = { height: height / 2, width: width / 2, pitch }
  const behind = luma.offset + height * pitch
  const frameBytes = behind + height * pitch
  const layouts = {
    planar: [
      { ...chroma, offset: behind, step: 1 },
      { ...chroma, offset: behind + (height / 2) * pitch, step: 1 },
    ],
    interleaved: [
      { ...chroma, offset: behind, step: 2 },
      { ...chroma, offset: behind + 1, step: 2 },
    ],
  }
  const x = Uint8Array.from(values(2 * frameBytes, 46), value => 128 + 127 * value)
  const matrix = [1.1, 0.07, -3.3, -0.05, 0.9, 2.5, 0.0007, -0.0011, 1]
  return Object.entries(layouts).map(([name, planes]) =>
    verifyCase('warpFrames', name, ['y'], 0, () => ({
      frames: 2,
      frameBytes,
      planes: [luma, ...planes],
      outHeight: 22,
      outWidth: 34,
      matrix,
      x,
      y: new Uint8Array(2 * 6 * 11 * 17),
    })),
  )
}

const [sigmoid, tanh]: FunctionArgs[] = [{ fn: 'sigmoid' }, { fn: 'tanh' }]
const cells = [
  { cell: 'rnn', gates: 1, functions: [tanh!] },
  { cell: 'gru', gates: 3, functions: [sigmoid!, tanh!] },
  { cell: 'lstm', gates: 4, functions: [sigmoid!, tanh!, tanh!] },
] as const

/** Layers with what they must have, of one direction, and with all that they may have. */
function recurrentCases(sizes: VerifySizes): VerifyCase[] {
  const [steps, batch, hidden] = [Math.min(sizes.tokens, 7), 3, Math.min(sizes.rows, 131)]
  const layers = [
    { directions: 1, reverse: false, whole: false },
    { directions: 1, reverse: true, whole: true },
    { directions: 2, reverse: false, whole: true },
  ]
  return cells.flatMap(({ cell, gates, functions }) =>
    layers.map(({ directions, reverse, whole }) => {
      const width = gates * hidden
      const states = directions * batch * hidden
      const lstm = cell === 'lstm'
      const inputs = {
        cell,
        directions,
        reverse,
        steps,
        batch,
        hidden,
        functions: Array.from({ length: directions }, () => functions).flat(),
        linearBeforeReset: whole,
        coupleGates: false,
        clip: whole ? 3 : undefined,
        gates: values(steps * directions * batch * width, 46),
        recurrence: values(directions * hidden * width, 47).map(value => value / Math.sqrt(hidden)),
        bias: whole ? values(directions * width, 48) : undefined,
        peepholes: whole && lstm ? values(directions * 3 * hidden, 49) : undefined,
        initialH: whole ? values(states, 50) : undefined,
        initialC: whole && lstm ? values(states, 51) : undefined,
        lengths: whole ? Int32Array.from({ length: batch }, (_, n) => Math.min(n, steps)) : undefined,
      }
      const ways = directions === 2 ? ', both ways' : reverse ? ', backwards' : ''
      const variant = `${cell}${ways}${whole ? ', all options' : ''}`
      const outputs = ['y', 'lastH', ...(lstm ? (['lastC'] as const) : [])] as const
      return verifyCase('recurrent', variant, outputs, sumTolerance(sizes), () => ({
        ...inputs,
        y: f32(steps * states),
        lastH: f32(states),
        lastC: lstm ? f32(states) : undefined,
        scratch: f32(directions * batch * (gates + 1) * hidden),
      }))
    }),
  )
}
