// A volume as a C++ class: volume reflex://127.0.0.1:7420
// The example overwrites the first 4 KiB.
#include <cstdint>
#include <iostream>
#include <memory>
#include <nearflash.h>
#include <stdexcept>
#include <vector>

class Volume {
  public:
    explicit Volume(const char *url) {
        nf_client *client = nullptr;
        check(nf_client_open(url, nullptr, &client));
        client_.reset(client);
    }

    void write(const std::vector<unsigned char> &data, std::uint64_t offset) {
        check(nf_pwrite(client_.get(), data.data(), data.size(), offset, 0));
    }

    std::vector<unsigned char> read(std::size_t bytes, std::uint64_t offset) {
        std::vector<unsigned char> data(bytes);
        check(nf_pread(client_.get(), data.data(), data.size(), offset));
        return data;
    }

    void flush() { check(nf_flush(client_.get())); }

  private:
    static void check(int result) {
        if (result < 0) {
            throw std::runtime_error(nf_error());
        }
    }

    struct Close {
        void operator()(nf_client *client) const { nf_client_close(client); }
    };

    std::unique_ptr<nf_client, Close> client_;
};

int main(int argc, char **argv) {
    try {
        Volume volume(argc > 1 ? argv[1] : "reflex://127.0.0.1:7420");
        const std::vector<unsigned char> data(4096, 3);
        volume.write(data, 0);
        volume.flush();
        if (volume.read(data.size(), 0) != data) {
            std::cerr << "other data came back\n";
            return 1;
        }
        std::cout << "4 KiB written and read\n";
    } catch (const std::exception &error) {
        std::cerr << error.what() << '\n';
        return 1;
    }
    return 0;
}
