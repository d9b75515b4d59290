// Which panels of a head have a row's largest logits, as a product with the head in few bits tells.
//
// Sources: Shim et al., "SVD-Softmax: Fast Softmax Approximation on Large Vocabulary Neural Networks" (2017), whose
// preview is of fewer inputs; Dettmers et al., "LLM.int8()" (2022), for the few inputs that are large in all texts.

#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numeric>
#include <vector>

#include "decoder.h"
#include "lanes.h"
#include "product.h"
#include "rounding.h"

namespace kakeya {

// Of the rows of one call. Panels are looked at by any thread, in any order; what is chosen is a function of the row.
class Preview {
  public:
    Preview(const KakeyaPreview& of, int rows)
        : of_(of), rows_(rows), panels_(panels(of.rest)), most_(static_cast<std::size_t>(rows) * panels_), order_(most_.size()),
          large_(static_cast<std::size_t>(rows) * of.large.inputs), rest_(static_cast<std::size_t>(rows) * of.rest.inputs),
          large_rounded_(rows, of.large.inputs), rest_rounded_(rows, of.rest.inputs) {}

    int kept() const { return of_.kept; }
    int panel_count() const { return panels_; }

    // Has a row of the head's inputs ready.
    void prepare(int row, const float* inputs) {
        const int large = of_.large.inputs, rest = of_.rest.inputs;
        for (int i = 0; i < large; ++i) large_[static_cast<std::size_t>(row) * large + i] = inputs[of_.order[i]];
        for (int i = 0; i < rest; ++i) rest_[static_cast<std::size_t>(row) * rest + i] = inputs[of_.order[large + i]];
        large_inputs().round_for(of_.large.format, row, large);
        rest_inputs().round_for(of_.rest.format, row, rest);
    }

    // Finds each row's largest in a panel. What is no number counts as the least.
    void look(int panel) {
        thread_local std::vector<Lanes> large;
        large.resize(static_cast<std::size_t>(rows_) * WIDE);
        panel_of(of_.large, large_inputs(), rows_, panel, [&](int row, int, const Lanes(&found)[WIDE]) { std::copy_n(found, WIDE, large.data() + row * WIDE); });
        panel_of(of_.rest, rest_inputs(), rows_, panel, [&](int row, int, const Lanes(&found)[WIDE]) {
            Lanes high = found[0] + large[row * WIDE];
            for (int lane = 1; lane < WIDE; ++lane) high = larger(high, found[lane] + large[row * WIDE + lane]);
            const float most = largest(high);
            most_[at(row, panel)] = most == most ? most : -INFINITY;
        });
    }

    // Once all panels were looked at.
    void choose(int row) {
        const float* most = most_.data() + at(row, 0);
        std::int32_t* order = order_.data() + at(row, 0);
        std::iota(order, order + panels_, 0);
        if (kept() < panels_)
            std::nth_element(order, order + kept(), order + panels_,
                             [&](std::int32_t a, std::int32_t b) { return most[a] > most[b] || (most[a] == most[b] && a < b); });
    }

    int chosen(int row, int index) const { return order_[at(row, index)]; }

  private:
    std::size_t at(int row, int panel) const { return static_cast<std::size_t>(row) * panels_ + panel; }
    Inputs large_inputs() { return large_rounded_.of(large_.data()); }
    Inputs rest_inputs() { return rest_rounded_.of(rest_.data()); }

    const KakeyaPreview& of_;
    const int rows_, panels_;
    std::vector<float> most_;          // [rows, panels]: the largest rough logit
    std::vector<std::int32_t> order_;  // [rows, panels]: the first `kept` are chosen
    std::vector<float> large_, rest_;  // [rows, inputs]
    Rounded large_rounded_, rest_rounded_;
};

}  // namespace kakeya
