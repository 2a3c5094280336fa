/* Which step of a run is shown. */

/* Show the step a number of steps further on. */
export function moveStep(store, by) {
  const { steps, place } = store;
  const step = steps[Math.min(steps.length - 1, Math.max(0, place + by))];
  if (step) store.chooseStep(step.step);
}
