// Pausing ahead of the limit: temperatures that a fake sensor injects, and devices whose fan or air changes.
import t from 'tap'
import { type PressureLevel, PressurePolicy } from '#lib/cluster/devices/pressure.js'
import type { ThermalParameters } from '#lib/cluster/devices/thermal-model.js'
import { ThermalPredictor } from '#lib/cluster/devices/thermal-predictor.js'
import { randomGenerator } from '#lib/core/random.js'
import { studyDevice, ThermalPlant } from '../../fixtures/cluster/thermal-plant.js'

const limit = 90

/** A device whose full load leads to about `hottest` °C. */
function device(random: () => number, hottest: number): { parameters: ThermalParameters; full: number } {
  const vary = (): number => 0.8 + 0.4 * random()
  const { r1, c1, r2, c2, ambient } = studyDevice
  const parameters = {
    r1: r1 * vary(),
    c1: c1 * vary(),
    r2: r2 * vary(),
    c2: c2 * vary(),
    ambient: ambient * vary(),
  }
  return { parameters, full: (hottest - parameters.ambient) / (parameters.r1 + parameters.r2) }
}

/** Runs a plant and a policy a second a step until `until` says so. */
class Machine {
  readonly plant: ThermalPlant
  readonly levels = new Set<PressureLevel>()
  /** °C that the sensor shows beside those of the plant. */
  injected = 0
  pausedAt: number | undefined
  hottest = 0
  level: PressureLevel = 'full'
  readonly #predictor: ThermalPredictor
  readonly #policy = new PressurePolicy({ temperatureLimit: limit })

  constructor(parameters: ThermalParameters, watts: number) {
    this.plant = new ThermalPlant(parameters, watts)
    this.#predictor = new ThermalPredictor({ parameters })
  }

  /** °C of the sensor before it rounds. */
  get temperature(): number {
    return this.plant.state.die + this.injected
  }

  step(watts: number): void {
    const drawn = this.level === 'paused' ? 5 : watts
    this.plant.step(drawn)
    this.hottest = Math.max(this.hottest, this.temperature)
    const temperature = Math.round(this.temperature)
    this.#predictor.add({ time: this.plant.time, temperature, power: drawn })
    const forecast = this.#predictor.predict()
    this.level = this.#policy.decide({ now: 1000 * this.plant.time, temperature, forecast }).level
    this.levels.add(this.level)
    if (this.level === 'paused') this.pausedAt ??= this.plant.time
  }
}

t.test('ramps of a fake sensor: paused before the limit in at least 95 % of 200 cases', async t => {
  const random = randomGenerator(1)
  let [before, orderly, lead] = [0, 0, 0]
  for (let i = 0; i < 200; i++) {
    const { parameters, full } = device(random, 80)
    const watts = full * (0.5 + 0.5 * random())
    const machine = new Machine(parameters, watts)
    for (let s = 0; s < 200; s++) machine.step(watts)
    const perSecond = 0.05 * 40 ** random() // up to 2 °C each second
    const begin = machine.levels.has('paused') ? -1 : machine.plant.time
    while (begin >= 0 && machine.temperature < limit && machine.pausedAt === undefined) {
      machine.injected += perSecond
      machine.step(watts)
    }
    if (machine.temperature < limit && machine.pausedAt !== undefined) before++
    if (machine.levels.has('lower-precision') && machine.levels.has('offload')) orderly++
    lead += (limit - machine.temperature) / perSecond / 200
  }
  t.comment(
    `${before} of 200 before the limit, ${lead.toFixed(1)} s ahead; ${orderly} by way of lower precision and offload`,
  )
  t.ok(before >= 190, `${before} of 200`)
  t.ok(lead > 1, `${lead} s ahead in the mean`)
})

t.test('a fan that fails, hot air, more load: the device itself stays below the limit', async t => {
  const random = randomGenerator(2)
  let held = 0
  for (let i = 0; i < 60; i++) {
    const { parameters, full } = device(random, 78)
    const machine = new Machine(parameters, full)
    for (let s = 0; s < 200; s++) machine.step(full)
    const [fan, air, load] = [
      i % 3 === 0 ? 1 + 2 * random() : 1,
      i % 3 === 1 ? 30 * random() : 0,
      i % 3 === 2 ? 1.5 : 1,
    ]
    for (let s = 1; s <= 400; s++) {
      machine.plant.change({
        r2: parameters.r2 * (1 + (fan - 1) * Math.min(1, s / 60)),
        ambient: parameters.ambient + air * Math.min(1, s / 120),
      })
      machine.step(full * load)
    }
    if (machine.hottest < limit) held++
  }
  t.comment(`${held} of 60 stayed below the limit`)
  t.ok(held >= 57, `${held} of 60`)
})

t.test('no pause and no other measure at a steady load of 80 %', async t => {
  const random = randomGenerator(3)
  for (let i = 0; i < 25; i++) {
    const { parameters, full } = device(random, limit)
    const machine = new Machine(parameters, 0.8 * full)
    for (let s = 0; s < 900; s++) machine.step(0.8 * full)
    t.same([...machine.levels], ['full'])
  }
})

t.test('after a pause work is resumed, level by level, and not before it is 8 °C cooler', async t => {
  const { parameters, full } = device(randomGenerator(4), 80)
  const machine = new Machine(parameters, full)
  while (machine.level !== 'paused' && machine.plant.time < 2000) machine.step(1.4 * full)
  t.equal(machine.level, 'paused')
  const seen: PressureLevel[] = []
  for (let s = 0; s < 300 && machine.level !== 'full'; s++) {
    const { level } = machine
    machine.step(0.3 * full)
    if (machine.level !== level) seen.push(machine.level)
    if (level === 'paused' && machine.level !== 'paused') t.ok(machine.temperature <= limit - 8)
  }
  t.same(seen, ['offload', 'lower-precision', 'full'])
})
