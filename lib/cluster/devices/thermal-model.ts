// thermal-model.ts: the two-node RC model of a device: a die on a heat sink (or chassis).
//
//   C1 dTd/dt = P - (Td - Ts) / R1
//   C2 dTs/dt = (Td - Ts) / R1 - (Ts - Ta) / R2
//
// For constant power the solution is exact: x(t) = x∞ + e^(A t) (x(0) - x∞). Skadron et al., "Temperature-aware
// microarchitecture", ISCA 2003, derive such networks.
import { expectNumber } from '../../core/checks.js'

/** Parameters of the model. */
export interface ThermalParameters {
  /** Thermal resistance between die and sink, °C/W. */
  readonly r1: number
  /** Heat capacity of the die, J/°C. */
  readonly c1: number
  /** Thermal resistance between sink and air, °C/W. */
  readonly r2: number
  /** Heat capacity of the sink, J/°C. */
  readonly c2: number
  /** Temperature of the air, °C. */
  readonly ambient: number
}

/** Temperatures of the two nodes, °C. */
export interface ThermalState {
  /** Of the chip. */
  readonly die: number
  /** Of what it is mounted on. */
  readonly sink: number
}

/** e^(A t), row by row. */
interface Transition {
  readonly seconds: number
  readonly matrix: readonly [number, number, number, number]
}

/**
 * Steps the temperatures of a device through time.
 * @example
 * const model = new ThermalModel({ r1: 0.2, c1: 20, r2: 0.5, c2: 400, ambient: 25 })
 * console.log(model.step({ die: 40, sink: 35 }, 60, 10).die, model.equilibrium(60).die)
 */
export class ThermalModel {
  /** What the device is like. */
  readonly parameters: ThermalParameters
  /** Samples come at a regular interval, so that one matrix serves many steps. */
  #last: Transition | undefined

  /** @throws SparkError ERR_ARGUMENT for resistances and capacities that are not positive */
  constructor(parameters: ThermalParameters) {
    for (const name of ['r1', 'c1', 'r2', 'c2'] as const)
      expectNumber(`parameters.${name}`, parameters[name], Number.MIN_VALUE)
    expectNumber('parameters.ambient', parameters.ambient)
    this.parameters = parameters
  }

  /** Temperatures that constant power leads to. */
  equilibrium(watts: number): ThermalState {
    const { r1, r2, ambient } = this.parameters
    const sink = ambient + watts * r2
    return { die: sink + watts * r1, sink }
  }

  /** Temperatures after some seconds of constant power. */
  step({ die, sink }: ThermalState, watts: number, seconds: number): ThermalState {
    const [a, b, c, d] = this.#transition(seconds)
    const end = this.equilibrium(watts)
    const [dieGap, sinkGap] = [die - end.die, sink - end.sink]
    return { die: end.die + a * dieGap + b * sinkGap, sink: end.sink + c * dieGap + d * sinkGap }
  }

  /**
   * Seconds of constant power until the die has a temperature; 0 when it has it already, infinity when it never will.
   * The die passes a limit above its start once at most where the sink is no hotter than the die.
   */
  secondsUntil(limit: number, from: ThermalState, watts: number): number {
    if (from.die >= limit) return 0
    if (this.equilibrium(watts).die <= limit) return Number.POSITIVE_INFINITY
    let [low, high] = [0, 1]
    for (; this.step(from, watts, high).die < limit; high *= 2) low = high
    for (let i = 0; i < 40; i++) {
      const middle = (low + high) / 2
      if (this.step(from, watts, middle).die < limit) low = middle
      else high = middle
    }
    return high
  }

  /** e^(A t) of a 2×2 matrix: e^(m t) (cosh(q t) I + sinh(q t) / q (A - m I)); q is real, for A has real eigenvalues. */
  #transition(seconds: number): Transition['matrix'] {
    if (this.#last?.seconds === seconds) return this.#last.matrix
    const { r1, c1, r2, c2 } = this.parameters
    const [a, b, c, d] = [-1 / (r1 * c1), 1 / (r1 * c1), 1 / (r1 * c2), -(1 / r1 + 1 / r2) / c2]
    const m = (a + d) / 2
    const q = Math.sqrt(((a - d) / 2) ** 2 + b * c)
    const [slow, fast] = [Math.exp((m + q) * seconds), Math.exp((m - q) * seconds)]
    const [even, odd] = [(slow + fast) / 2, (slow - fast) / (2 * q)]
    const matrix = [even + odd * (a - m), odd * b, odd * c, even + odd * (d - m)] as const
    this.#last = { seconds, matrix }
    return matrix
  }
}
