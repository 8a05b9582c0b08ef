// node-pressure.ts: the pressure on a node: what its devices measure and what limits it, its policy, and the gate of its work.
import type { ConstraintProvider } from './constraints.js'
import type { DeviceRecord } from './device-record.js'
import { type PressureDecision, type PressureOptions, PressurePolicy } from './pressure.js'
import type { PressureGate } from './pressure-gate.js'
import {
  type ThermalPrediction,
  ThermalPredictor,
  type ThermalPredictorOptions,
} from './thermal-predictor.js'

/** Options of a {@link NodePressure}. */
export interface NodePressureOptions extends PressureOptions {
  /** What work passes. */
  readonly gate: PressureGate
  /** What limits the node beside its devices. */
  readonly constraints: ConstraintProvider
  /** What is known of a device before it is measured: an earlier fit, the range of its power. */
  readonly thermal?: (device: DeviceRecord) => ThermalPredictorOptions
}

/**
 * Decides and carries out what a node does under pressure.
 * @example
 * const pressure = new NodePressure({ gate, constraints: new LocalConstraints() })
 * setInterval(() => pressure.update(registry.devices.filter(({ nodeId }) => nodeId === own)), 1000)
 */
export class NodePressure {
  readonly #policy: PressurePolicy
  readonly #gate: PressureGate
  readonly #constraints: ConstraintProvider
  readonly #thermal: NonNullable<NodePressureOptions['thermal']>
  readonly #predictors = new Map<string, ThermalPredictor>()

  /** @throws SparkError ERR_ARGUMENT */
  constructor({ gate, constraints, thermal = () => ({}), ...policy }: NodePressureOptions) {
    this.#policy = new PressurePolicy(policy)
    this.#gate = gate
    this.#constraints = constraints
    this.#thermal = thermal
  }

  /** What predicts the temperature of a device; undefined for one that was never measured. */
  predictor(id: string): ThermalPredictor | undefined {
    return this.#predictors.get(id)
  }

  /**
   * Takes the last measurements of the devices of the node, and does what the policy says.
   * @param now - milliseconds of any clock
   * @throws what an action of the gate throws
   */
  async update(devices: readonly DeviceRecord[], now: number = Date.now()): Promise<PressureDecision> {
    const measured = devices.flatMap(device => this.#measure(device) ?? [])
    const constraints = await this.#constraints.read()
    const temperatures = measured.map(({ temperature }) => temperature)
    const forecast = measured.flatMap(device => device.forecast).sort((a, b) => a.seconds - b.seconds)
    const decision = this.#policy.decide({
      now,
      constraints,
      ...(measured.length > 0 && { temperature: Math.max(...temperatures), forecast }),
    })
    if (decision.changed) await this.#gate.apply(decision)
    return decision
  }

  /** Lets the predictor of a device see its measurement; undefined where it has no temperature. */
  #measure(device: DeviceRecord): Measured | undefined {
    const { id, telemetry } = device
    if (telemetry?.temperature === undefined || device.state === 'offline') return undefined
    const { temperature, power, utilization } = telemetry
    const predictor = this.#predictors.get(id) ?? new ThermalPredictor(this.#thermal(device))
    this.#predictors.set(id, predictor)
    predictor.add({
      time: telemetry.time / 1000,
      temperature,
      ...(power !== undefined && { power }),
      ...(utilization !== undefined && { utilization: utilization / 100 }),
    })
    return { temperature, forecast: predictor.predict() }
  }
}

/** A device with its temperatures now and ahead, °C. */
interface Measured {
  readonly temperature: number
  readonly forecast: readonly ThermalPrediction[]
}
