// The thermal model, its fit, and its predictions, on a simulated device whose sensor rounds to whole degrees; two hours at 1 Hz.
import t from 'tap'
import { nelderMead } from '#lib/cluster/devices/nelder-mead.js'
import { excitation, fitThermalModel, type ThermalSample } from '#lib/cluster/devices/thermal-fit.js'
import { ThermalModel, type ThermalState } from '#lib/cluster/devices/thermal-model.js'
import { type ThermalPrediction, ThermalPredictor } from '#lib/cluster/devices/thermal-predictor.js'
import { randomLoad, studyDevice, ThermalPlant } from '../../fixtures/cluster/thermal-plant.js'

/** Euler's method with steps of a millisecond. */
function euler(
  { r1, c1, r2, c2, ambient }: typeof studyDevice,
  from: ThermalState,
  watts: number,
  seconds: number,
): ThermalState {
  let { die, sink } = from
  for (let i = 0; i < seconds * 1000; i++) {
    const [through, out] = [(die - sink) / r1, (sink - ambient) / r2]
    die += (0.001 * (watts - through)) / c1
    sink += (0.001 * (through - out)) / c2
  }
  return { die, sink }
}

const near = (
  t: { ok(value: boolean, name: string): unknown },
  value: number,
  wanted: number,
  within: number,
  name: string,
): void => void t.ok(Math.abs(value - wanted) <= within, `${name}: ${value} is within ${within} of ${wanted}`)

t.test('steps are exact', async t => {
  const model = new ThermalModel(studyDevice)
  for (const [watts, seconds] of [
    [80, 1],
    [0, 7],
    [55, 60],
  ] as const) {
    const from = { die: 50, sink: 40 }
    const [a, b] = [model.step(from, watts, seconds), euler(studyDevice, from, watts, seconds)]
    near(t, a.die, b.die, 0.01, 'die')
    near(t, a.sink, b.sink, 0.01, 'sink')
  }
  const from = { die: 40, sink: 35 }
  const two = model.step(model.step(from, 70, 3), 70, 4)
  near(t, two.die, model.step(from, 70, 7).die, 1e-9, 'steps compose')
  const end = model.step(from, 70, 1e6)
  near(t, end.die, 27 + 70 * 0.55, 1e-9, 'equilibrium')
  const seconds = model.secondsUntil(60, from, 90)
  near(t, model.step(from, 90, seconds).die, 60, 1e-6, 'at the limit')
  t.equal(model.secondsUntil(90, from, 50), Number.POSITIVE_INFINITY)
  t.equal(model.secondsUntil(30, from, 50), 0)
  t.throws(() => new ThermalModel({ ...studyDevice, c2: 0 }), {
    code: 'ERR_ARGUMENT',
    message: 'parameters.c2',
  })
})

t.test('the simplex finds the minimum of a valley', async t => {
  const rosenbrock = ([x, y]: readonly number[]): number => (1 - x!) ** 2 + 100 * (y! - x! ** 2) ** 2
  const { point, cost } = nelderMead(rosenbrock, [-1.2, 1], { size: 0.5, iterations: 200 })
  t.ok(cost < 1e-8, `${point} costs ${cost}`)
})

/** Half an hour of a plant under a random load. */
function recorded(seed: number, seconds: number): ThermalSample[] {
  const [plant, load] = [new ThermalPlant(studyDevice, 20), randomLoad(seed)]
  return Array.from({ length: seconds }, () => {
    const power = load()
    plant.step(power)
    return { time: plant.time, temperature: plant.reading, power }
  })
}

t.test('a fit recovers the parameters within 20 %', async t => {
  for (const seed of [1, 2, 3]) {
    const { parameters, error } = fitThermalModel(recorded(seed, 1800))!
    for (const name of ['r1', 'c1', 'r2', 'c2', 'ambient'] as const)
      near(t, parameters[name], studyDevice[name], 0.2 * studyDevice[name], name)
    t.ok(error < 0.4, `${error}: the sensor rounds with 0.29`)
  }
})

t.test('no fit without enough samples or excitation', async t => {
  t.equal(fitThermalModel(recorded(1, 200)), undefined)
  const steady = recorded(1, 1800).map(sample => ({ ...sample, power: 50 + (sample.time % 10) }))
  t.ok(excitation(steady) < 15)
  t.equal(fitThermalModel(steady), undefined)
  const noise = recorded(1, 600).map(sample => ({ ...sample, temperature: 90 - sample.power }))
  t.equal(fitThermalModel(noise), undefined, 'a device that power cools is no network')
})

/** Errors of predictions made in the last hour and a half of two hours, by horizon. */
function errorsOf(
  seed: number,
  given: (power: number) => object,
): { errors: Map<number, number[]>; covered: number } {
  const [plant, load] = [new ThermalPlant(studyDevice, 20), randomLoad(seed)]
  const powers = Array.from({ length: 7200 }, load)
  const predictor = new ThermalPredictor({ powerRange: [10, 100] })
  const readings: number[] = []
  const made: { at: number; predictions: ThermalPrediction[] }[] = []
  powers.forEach((power, at) => {
    plant.step(power)
    readings.push(plant.reading)
    predictor.add({ time: at, temperature: plant.reading, ...given(power) })
    if (at > 1800 && at < 7139 && at % 3 === 0)
      made.push({ at, predictions: predictor.predict(powers.slice(at + 1, at + 61)) })
  })
  const errors = new Map<number, number[]>()
  let [inside, all] = [0, 0]
  for (const { at, predictions } of made) {
    for (const { seconds, temperature, upper } of predictions) {
      const came = readings[at + seconds]!
      errors.set(seconds, [...(errors.get(seconds) ?? []), Math.abs(came - temperature)])
      inside += Number(came <= upper)
      all++
    }
  }
  return { errors, covered: inside / all }
}

const mean = (values: readonly number[]): number =>
  values.reduce((sum, value) => sum + value, 0) / values.length

t.test('predictions 10, 30 and 60 s ahead, with the power known', async t => {
  const { errors, covered } = errorsOf(1, power => ({ power }))
  for (const [seconds, bound] of [
    [10, 0.34],
    [30, 0.4],
    [60, 0.46],
  ] as const) {
    const error = mean(errors.get(seconds)!)
    t.ok(error <= bound, `${seconds} s: mean absolute error ${error.toFixed(3)} °C of at most ${bound}`)
    t.comment(`${seconds} s ahead: mean absolute error ${error.toFixed(3)} °C`)
  }
  t.ok(covered >= 0.9, `${(100 * covered).toFixed(1)} % lie below the band`)
})

t.test('without a sensor of power utilization stands for it, with a wider band', async t => {
  const { errors, covered } = errorsOf(2, power => ({ utilization: (power - 10) / 90 }))
  t.ok(mean(errors.get(30)!) <= 0.5)
  t.ok(covered >= 0.9)
  const band = (given: object): number => {
    const predictor = new ThermalPredictor({ parameters: studyDevice })
    for (let time = 0; time < 300; time++) predictor.add({ time, temperature: 60 + (time % 2), ...given })
    const { upper, temperature } = predictor.predict().at(-1)!
    return upper - temperature
  }
  t.ok(band({ utilization: 0.5 }) > 1.3 * band({ power: 55 }))
})

t.test('a fan that slows down leads to another fit', async t => {
  const [plant, load] = [new ThermalPlant(studyDevice, 20), randomLoad(5)]
  const predictor = new ThermalPredictor()
  for (let i = 0; i < 7200; i++) {
    if (i === 3000) plant.change({ r2: 0.6 })
    const power = load()
    plant.step(power)
    predictor.add({ time: i, temperature: plant.reading, power })
  }
  near(t, predictor.parameters!.r2, 0.6, 0.12, 'r2')
  t.ok(Math.abs(predictor.bias) < 1)
})

t.test('readings that say nothing, and those that are wrong', async t => {
  const predictor = new ThermalPredictor()
  t.same(predictor.predict(50), [])
  t.equal(predictor.temperature, undefined)
  predictor.add({ time: 5, temperature: 40, power: 10 })
  predictor.add({ time: 5, temperature: 90, power: 10 })
  predictor.add({ time: 6, temperature: 90 })
  t.equal(predictor.temperature, 40)
  t.throws(() => predictor.add({ time: 7, temperature: Number.NaN, power: 1 }), { code: 'ERR_ARGUMENT' })
  t.throws(() => predictor.add({ time: 7, temperature: 50, power: -1 }), { code: 'ERR_ARGUMENT' })
  t.throws(() => new ThermalPredictor({ powerRange: [50, 10] }), { code: 'ERR_ARGUMENT' })
})
