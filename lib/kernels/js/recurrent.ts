// recurrent.ts: recurrent layers in plain TypeScript.
import type { Paced } from '../../core/paced.js'
import { panelRows, panelSizes } from '../../weights/panels.js'
import type { RecurrentArgs } from '../kernels.js'
import { unaryFunctions } from './functions.js'
import { expectFits } from './operands.js'
import { elements, type KernelRows, optional } from './row.js'

const gateCounts = { rnn: 1, gru: 3, lstm: 4 } as const

/** The state of a sample. */
interface State {
  h: number[]
  c: number[]
}

/** What computes the functions f, g, h of ONNX with clipping. */
function functionsOf({ functions, clip = Number.POSITIVE_INFINITY }: RecurrentArgs) {
  return functions.map(
    ({ fn, alpha = 0, beta = 0 }) =>
      (x: number): number =>
        unaryFunctions[fn]!(Math.min(Math.max(x, -clip), clip), alpha, beta),
  )
}

/** bias[j] + Σ_k h[k] · weight[k, j] for the unit j of a gate. */
function product(
  { hidden, recurrence, packed = false, bias, cell }: RecurrentArgs,
  h: readonly number[],
  gate: number,
  j: number,
): number {
  const width = gateCounts[cell] * hidden
  const column = gate * hidden + j
  const [first, step] = packed
    ? [(column - (column % panelRows)) * hidden + (column % panelRows), panelRows]
    : [column, width]
  return h.reduce((sum, value, k) => sum + value * recurrence[first + k * step]!, bias?.[column] ?? 0)
}

type Step = (args: RecurrentArgs, state: State, x: (gate: number, j: number) => number) => State

const units = (args: RecurrentArgs, unit: (j: number) => number): number[] =>
  Array.from({ length: args.hidden }, (_, j) => unit(j))

const rnnStep: Step = (args, { h, c }, x) => {
  const [f] = functionsOf(args)
  return { h: units(args, j => f!(x(0, j) + product(args, h, 0, j))), c }
}

const gruStep: Step = (args, { h, c }, x) => {
  const [f, g] = functionsOf(args)
  const z = units(args, j => f!(x(0, j) + product(args, h, 0, j)))
  const r = units(args, j => f!(x(1, j) + product(args, h, 1, j)))
  const candidate = units(args, j => {
    if (args.linearBeforeReset) return g!(x(2, j) + r[j]! * product(args, h, 2, j))
    return g!(
      x(2, j) +
        product(
          args,
          h.map((value, k) => r[k]! * value),
          2,
          j,
        ),
    )
  })
  return { h: units(args, j => (1 - z[j]!) * candidate[j]! + z[j]! * h[j]!), c }
}

const lstmStep: Step = (args, { h, c }, x) => {
  const [f, g, last] = functionsOf({ ...args, clip: args.clip })
  const unclipped = functionsOf({ ...args, clip: undefined })[2] ?? last!
  const peephole = (n: number, j: number, state: readonly number[]): number =>
    (args.peepholes?.[n * args.hidden + j] ?? 0) * state[j]!
  const sum = (gate: number, j: number): number => x(gate, j) + product(args, h, gate, j)
  const input = units(args, j => f!(sum(0, j) + peephole(0, j, c)))
  const forget = units(args, j => (args.coupleGates ? 1 - input[j]! : f!(sum(2, j) + peephole(2, j, c))))
  const next = units(args, j => forget[j]! * c[j]! + input[j]! * g!(sum(3, j)))
  const output = units(args, j => f!(sum(1, j) + peephole(1, j, next)))
  return { h: units(args, j => output[j]! * unclipped(next[j]!)), c: next }
}

const steps = { rnn: rnnStep, gru: gruStep, lstm: lstmStep } as const

/** The part of one direction of arguments that hold several. */
function directionOf(args: RecurrentArgs, d: number): RecurrentArgs {
  const part = <A extends Float32Array | undefined>(array: A): A =>
    array &&
    (array.subarray((d * array.length) / args.directions, ((d + 1) * array.length) / args.directions) as A)
  const count = args.functions.length / args.directions
  const { recurrence, bias, peepholes, initialH, initialC, lastH, lastC } = args
  return {
    ...args,
    reverse: args.reverse || d === 1,
    functions: args.functions.slice(d * count, (d + 1) * count),
    ...{ recurrence: part(recurrence), bias: part(bias), peepholes: part(peepholes) },
    ...{ initialH: part(initialH), initialC: part(initialC), lastH: part(lastH), lastC: part(lastC) },
  }
}

/** A recurrent layer. */
function* recurrent(args: RecurrentArgs): Paced<void> {
  for (let d = 0; d < args.directions; d++) yield* runDirection(directionOf(args, d), d)
}

function* runDirection(args: RecurrentArgs, d: number): Paced<void> {
  const { cell, directions, batch, hidden, gates, initialH, initialC, lengths, y, lastH, lastC } = args
  const width = gateCounts[cell] * hidden
  for (let n = 0; n < batch; n++) {
    const start = (from: Float32Array | undefined): number[] => units(args, j => from?.[n * hidden + j] ?? 0)
    let state: State = { h: start(initialH), c: start(initialC) }
    const length = Math.min(Math.max(lengths?.[n] ?? args.steps, 0), args.steps)
    for (let t = 0; t < args.steps; t++) {
      yield
      const step = args.reverse && t < length ? length - 1 - t : t
      const first = ((step * batch + n) * directions + d) * width
      if (t < length) state = steps[cell](args, state, (gate, j) => gates[first + gate * hidden + j]!)
      const shown = t < length ? state.h : units(args, () => 0)
      y?.set(shown, ((step * directions + d) * batch + n) * hidden)
    }
    lastH.set(state.h, n * hidden)
    lastC?.set(state.c, n * hidden)
  }
}

function expectRecurrent({ cell, directions, functions }: RecurrentArgs): void {
  expectFits(directions === 1 || directions === 2, `directions is ${directions}, neither 1 nor 2`)
  const count = directions * { rnn: 1, gru: 2, lstm: 3 }[cell]
  expectFits(functions.length === count, `there are ${functions.length} functions; this layer has ${count}`)
}

/** Contract of recurrent layers. */
export const recurrentRows: KernelRows<'recurrent'> = {
  recurrent: {
    kernel: recurrent,
    sizes: ['steps', 'batch', 'hidden'],
    check: expectRecurrent,
    operands({ cell, directions, steps, batch, hidden, packed }) {
      const width = gateCounts[cell] * hidden
      const states = directions * batch * hidden
      const panels = panelSizes({ format: 'f32', rows: width, cols: hidden }).data
      return {
        gates: steps * directions * batch * width,
        recurrence: directions * (packed ? panels : hidden * width),
        bias: optional(directions * width),
        peepholes: optional(directions * 3 * hidden),
        initialH: optional(states),
        initialC: optional(states),
        lengths: optional(elements('i32', batch)),
        y: optional(steps * states),
        lastH: states,
        lastC: cell === 'lstm' ? states : optional(states),
        scratch: directions * batch * (width + hidden),
      }
    },
  },
}
