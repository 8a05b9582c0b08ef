// Batches on several stages: each stage works on one at a time, in the order in which they came, while others have the next.
import { Tensor } from 'dgx-spark'
import t from 'tap'
import type { Pipeline } from '#lib/cluster/stages/pipeline.js'
import type { Place } from '#lib/cluster/stages/stage-place.js'
import { StagedRunner } from '#lib/cluster/text/staged-runner.js'
import { SparkError } from '#lib/core/errors.js'
import type { Batch } from '#lib/text/generation/batch.js'
import { CacheLost } from '#lib/text/generation/scheduler.js'

interface Question {
  readonly op: string
  readonly step?: number
}

/** Two stages, what they were asked, and how many worked at the same time at most. */
function twoStages(answer: (stage: number, question: Question) => void = () => undefined) {
  const seen = { steps: [[], []] as number[][], most: 0, mostOfOne: 0 }
  const busy = [0, 0]
  const stages = [0, 1].map(stage => ({
    plan: { nodeId: `node ${stage}` },
    ends: { states: new Map([['past', 'present']]) },
    async ask(question: Question) {
      if (question.op !== 'run') return answer(stage, question)
      busy[stage]!++
      seen.most = Math.max(seen.most, busy[0]! + busy[1]!)
      seen.mostOfOne = Math.max(seen.mostOfOne, busy[stage]!)
      await new Promise(resolve => setTimeout(resolve, 2 + ((question.step! + stage) % 3)))
      busy[stage]!--
      answer(stage, question)
      seen.steps[stage]!.push(question.step!)
      return { tensors: stage === 1 ? { logits: Tensor.from(Float32Array.of(question.step!)) } : {} }
    },
  })) as unknown as Place[]
  const pipeline = {
    stages,
    async pass(
      values: Map<string, unknown>,
      _: unknown,
      run: (stage: Place, own: object, outputs: string[]) => object,
    ) {
      for (const stage of stages)
        for (const [name, tensor] of Object.entries(await run(stage, {}, ['logits'])))
          values.set(name, tensor)
    },
    endSequence: async () => undefined,
  } as unknown as Pipeline
  return { seen, runner: new StagedRunner(pipeline, ['present'], { name: 'cpu', reason: 'a test' }) }
}

const batch = { feeds: {} } as unknown as Batch
const run = async (runner: StagedRunner): Promise<number> => (await runner.run(batch, ['logits'])).logits![0]!

t.test('batches go through the stages one behind the other', async t => {
  const { seen, runner } = twoStages()
  t.equal(runner.batches, 2)
  t.same(await Promise.all([0, 1, 2, 3, 4].map(() => run(runner))), [0, 1, 2, 3, 4])
  t.equal(seen.most, 2, 'both stages work')
  t.equal(seen.mostOfOne, 1, 'each on one batch')
  t.same(seen.steps, [
    [0, 1, 2, 3, 4],
    [0, 1, 2, 3, 4],
  ])
})

t.test('a stage that lost its cache ends the batches behind, too', async t => {
  let isLost = true
  const { seen, runner } = twoStages((stage, { op, step }) => {
    if (op === 'run' && stage === 1 && step === 1 && isLost)
      throw new SparkError('ERR_DISPOSED', 'begin it again')
  })
  const results = await Promise.allSettled([0, 1, 2].map(() => run(runner)))
  t.match(results, [
    { status: 'fulfilled', value: 0 },
    { status: 'rejected', reason: { code: 'ERR_DISPOSED' } },
    { status: 'rejected', reason: { message: 'a batch before has failed' } },
  ])
  const behind = await run(runner).catch(error => error)
  t.ok(behind instanceof CacheLost, 'until the caches are begun anew')
  isLost = false
  await runner.reset()
  seen.steps[1] = []
  t.same(await Promise.all([run(runner), run(runner)]), [0, 1])
  t.same(seen.steps[1], [0, 1])
})
