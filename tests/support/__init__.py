"""What tests of several folders share: runs of scripts, local servers, recordings, files of data sets."""
