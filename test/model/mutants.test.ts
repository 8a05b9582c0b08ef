// Broken models, adapters and checkpoints: a few of those of the nightly run (test/fixtures/fuzz).
import t from 'tap'
import { backends } from '../fixtures/backends.js'
import { allKinds } from '../fixtures/fuzz/kinds.js'
import { trialOf } from '../fixtures/fuzz/trials.js'

for (const kind of allKinds) {
  t.test(`broken files of the kind ${kind} run or are refused`, async t => {
    const ended = new Map<string, number>()
    for (let id = 0; id < 40; id++) {
      const trial = await trialOf(id, [kind])
      for (const backend of backends) {
        const result = await trial
          .run(backend)
          .catch(error => t.fail(`${kind} ${id} on ${backend}`, { error }))
        ended.set(String(result), (ended.get(String(result)) ?? 0) + 1)
      }
      await trial.close?.()
    }
    t.ok(ended.get('ran'), 'some run')
    t.ok(ended.get('ERR_FORMAT'), 'some are refused')
  })
}
