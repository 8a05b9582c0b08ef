// Schedules against the learning rates that PyTorch and transformers give.
import t from 'tap'
import { createSchedule, type ScheduleOptions } from '#lib/training/schedules.js'
import { close } from '../fixtures/close.js'
import { goldenJson, noGolden } from '../fixtures/values/golden-bytes.js'

interface ScheduleCase {
  id: string
  kind: string
  lr: number
  args: Record<string, number | string>
  metrics?: (number | string)[]
  lr_after_each: number[]
}

const types: Record<string, string> = {
  reduce_on_plateau: 'reduce-on-plateau',
  cosine_with_warmup: 'cosine',
  linear_with_warmup: 'linear',
  constant_with_warmup: 'constant',
}

const names: Record<string, string> = {
  min_lr: 'minimum',
  threshold_mode: 'thresholdMode',
  num_warmup_steps: 'warmup',
  num_training_steps: 'steps',
  num_cycles: 'cycles',
}

t.test('golden rates', { skip: noGolden }, async t => {
  const { cases } = goldenJson<{ cases: ScheduleCase[] }>('optim/schedules.json')
  for (const { id, kind, lr, args, metrics, lr_after_each } of cases) {
    if (!types[kind] || Array.isArray(lr_after_each[0])) continue
    const options = Object.fromEntries(
      Object.entries(args).map(([name, value]) => [names[name] ?? name, value]),
    )
    const make = () => createSchedule({ type: types[kind], ...options } as ScheduleOptions, lr)
    let schedule = make()
    const rates = lr_after_each.map((_, step) => {
      if (step > 0 && metrics) schedule.observe(Number(metrics[step - 1]))
      // What a checkpoint keeps must be all there is.
      const state = schedule.state()
      schedule = make()
      schedule.restore(state)
      return schedule.rate(step)
    })
    close(t, rates, lr_after_each, 1e-12, id)
  }
})

t.test('the steps of the training are the default', async t => {
  const schedule = createSchedule('linear', 1, 4)
  t.same(
    [0, 1, 2, 3, 4, 5].map(step => schedule.rate(step)),
    [1, 0.75, 0.5, 0.25, 0, 0],
  )
  t.throws(() => createSchedule('cosine', 1), { code: 'ERR_ARGUMENT', message: /schedule.steps/ })
  t.equal(createSchedule('constant', 0.3).rate(1000), 0.3)
})

t.test('what is refused', async t => {
  for (const options of [
    { type: 'step' },
    { type: 'cosine', warmup: -1 },
    { type: 'cosine', warm: 1 },
    { type: 'reduce-on-plateau', factor: 1 },
    { type: 'reduce-on-plateau', mode: 'most' },
    { type: 'reduce-on-plateau', steps: 3 },
  ]) {
    t.throws(() => createSchedule(options as ScheduleOptions, 1, 10), { code: 'ERR_ARGUMENT' })
  }
})
