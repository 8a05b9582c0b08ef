// Language models in the mode of the GPU, bf16 or fp16: logits near the golden ones (DGX_SPARK_TEST_DATA), of prompts and of steps.
import { goldenOf, lastOf, openOnGpu, textTests } from '../fixtures/gpu-suite/text-goldens.js'

/** Part of the largest logit by which 16-bit products may move one, in models as small as these. */
const bound = 0.08

await textTests(async (t, { file, goldens }) => {
  const { prompts, lastLogits } = await goldenOf(goldens)
  const model = await openOnGpu(file)
  for (const [i, { input_ids: ids }] of prompts.entries()) {
    t.close(lastOf(await model.rows(ids), ids.length), lastLogits(i), bound, `p${i}`)
    t.close((await model.greedy(ids, 1)).logits[0] ?? [], lastLogits(i), bound, `p${i} by steps`)
  }
  await model.close()
})
