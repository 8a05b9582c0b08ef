// Misspelled names are answered with the known one that was probably meant.
import { Model } from 'dgx-spark'
import t from 'tap'
import { expectOneOf } from '#lib/core/checks.js'
import { didYouMean, didYouMeanOption, nearestName } from '#lib/core/did-you-mean.js'
import { checkOptions } from '#lib/training/options.js'

t.test('the nearest name', async t => {
  const known = ['batchSize', 'backend', 'precision', 'keep', 'lr']
  t.equal(nearestName('batchsize', known), 'batchSize', 'case')
  t.equal(nearestName('bacthSize', known), 'batchSize', 'neighbours swapped')
  t.equal(nearestName('presicion', known), 'precision')
  t.equal(nearestName('bakend', known), 'backend')
  t.equal(nearestName('rl', known), undefined, 'two letters say too little')
  t.equal(nearestName('optimizer', known), undefined)
  t.equal(nearestName('', known), undefined)
  t.equal(nearestName('x'.repeat(1e6), known), undefined, 'long names are not compared')
  t.equal(didYouMean('kepe', known), " (did you mean 'keep'?)")
})

t.test('messages name it', async t => {
  await t.rejects(Model.load('x.onnx', { batchsize: 3 } as never), {
    code: 'ERR_ARGUMENT',
    message: "options has no option 'batchsize' (did you mean 'batchSize'?); known: backend,",
  })
  t.throws(() => expectOneOf('options.precision', 'pf16', ['fp16', 'bf16']), {
    message: "options.precision must be one of fp16, bf16, got 'pf16' (did you mean 'fp16'?)",
  })
})

t.test('options are found by the names of other libraries', async t => {
  const options = ['epochs', 'batchSize', 'maxNorm', 'optimizer', 'accumulate', 'schedule']
  const optimizer = ['type', 'learningRate', 'beta1', 'beta2', 'weightDecay']
  for (const [name, known, meant] of [
    ['lr', options, 'optimizer.learningRate'],
    ['lr', optimizer, 'learningRate'],
    ['learning_rate', optimizer, 'learningRate'],
    ['betas', optimizer, 'beta1 and beta2'],
    ['weight_decay', options, 'optimizer.weightDecay'],
    ['weight_decay', optimizer, 'weightDecay'],
    ['batch_size', options, 'batchSize'],
    ['max_grad_norm', options, 'maxNorm'],
    ['gradient_accumulation_steps', options, 'accumulate'],
    ['warmup_steps', options, 'schedule.warmup'],
    ['r', ['rank', 'alpha'], 'rank'],
    ['lora_alpha', ['rank', 'alpha'], 'alpha'],
    ['epohcs', options, 'epochs'],
  ] as const) {
    t.equal(didYouMeanOption(name, known), ` (did you mean '${meant}'?)`, name)
  }
  t.equal(didYouMeanOption('constructor', options), '')
  t.throws(() => checkOptions({ loss: 'mse', lr: 1e-3 } as never), {
    code: 'ERR_ARGUMENT',
    message: /no option 'lr' \(did you mean 'optimizer.learningRate'\?\)/,
  })
})
